"""Questions to the past that several rooms ask, or that are long: backtests, tunings, explanations, exports."""

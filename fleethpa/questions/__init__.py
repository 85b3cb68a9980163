"""Questions to the past that several rooms ask, or that are long: backtests, explanations, exports."""

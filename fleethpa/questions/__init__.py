"""Questions to the past and their reports: what-if, backtests, tunings, regret and exports. Writes files only."""

"""Questions to the past: what-if, backtest, counterfactuals, revisions, shadow report."""

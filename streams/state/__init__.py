"""PURE: fleethpa's own part of a decision: the fold of the log, state rows, schedule, guards, evaluation, ledger."""

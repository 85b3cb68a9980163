"""PURE: wanted and observed state in, actions out."""

"""PURE: the upstream HPA algorithm, transcribed. Whoever wants to know upstream's rule reads here."""

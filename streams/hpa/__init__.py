"""PURE: the upstream HPA algorithm, transcribed. Nothing of fleethpa's own; who wants to know upstream's rule reads here."""

"""PURE: the upstream HPA algorithm, transcribed: the place to read upstream's rules."""

"""A better spec for one HPA from its own past."""

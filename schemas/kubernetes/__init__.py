"""Kubernetes' own types and rules as its API server applies them: quantities, selectors, names, HPA shapes and validation. No I/O."""

"""Kubernetes' types and rules as its API server applies them: quantities, selectors, names, HPA shapes. No I/O."""

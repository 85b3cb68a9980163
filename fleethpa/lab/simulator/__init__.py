"""Simulated Kubernetes clusters: an API server, pods that start, fail and take load, and the metrics APIs."""

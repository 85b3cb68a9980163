"""Watches clusters and polls their metrics APIs; writes the public topics."""

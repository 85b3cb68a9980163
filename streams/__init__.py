"""Observations in, decisions out: ingest, the pure core, the decider and replay."""

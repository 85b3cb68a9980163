"""Decisions in, `/scale` writes, HPA status and Events, outcomes out."""

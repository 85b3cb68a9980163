"""Tuning: what an HPA costs against an ideal autoscaler, and which spec is better. `tune.py` has the verb."""

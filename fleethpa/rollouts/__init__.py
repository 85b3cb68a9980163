"""Changed specs go out in waves of clusters, each judged by recorded decisions. `rollout.py` has the verbs."""

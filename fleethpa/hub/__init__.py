"""The kinds of the hub's Kubernetes API (`fleethpa.io`): read, put into the log, and shown again on the objects."""

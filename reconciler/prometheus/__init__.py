"""A Prometheus that is asked in place of the metrics APIs of a cluster, by the rules of prometheus-adapter."""

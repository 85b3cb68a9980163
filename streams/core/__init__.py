"""PURE: the HPA algorithm and the fold of the log. No I/O, clock, randomness, logging, Kafka or Kubernetes client."""

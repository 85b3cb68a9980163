"""What every long-running process needs: Kafka clients, the administration of topics, health and metrics over HTTP."""

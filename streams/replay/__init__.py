"""The same core over the log or an archive of it; needs no Kafka."""

"""A Kafka broker without Docker, for tests and for machines that have none."""

"""Health of the server and metrics for Prometheus."""

"""Requests to nodes: the SSH transports, sessions, and the connection pool."""

"""Requests to nodes: the SSH transports, sessions, and the pool of connections."""

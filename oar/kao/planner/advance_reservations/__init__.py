"""Advance reservations: health, resources, granting of requests, changes; their states in a round."""

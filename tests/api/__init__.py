"""Tests of the REST API, on a real service on loopback."""

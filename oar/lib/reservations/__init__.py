"""Advance reservations: records, requests, changes, frames, bills, views."""

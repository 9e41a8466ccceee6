"""Advance reservations and usersets over HTTP."""

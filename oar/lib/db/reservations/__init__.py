"""Advance reservations: their rows, series, faults, reports and changes."""

"""Advance reservations: their rows, jobs, series, changes, logs, intervals, bills, faults and reports."""

"""Hypothetical planning: estimates for submissions, changed jobs and changed machines."""

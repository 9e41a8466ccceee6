"""Submissions: what is checked before, and the rows of new jobs."""

"""Statements of the scheduler: what it reads and the plan that it writes."""

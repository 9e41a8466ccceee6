"""Submission of jobs: options, checks, admission rules, feasibility, insertion."""

"""What the planner is given (a snapshot), what it answers (a plan), and what types of jobs and policies mean.

Also what it is to make long work in steps.
"""

"""What can be done with advance reservations: ask, answer, delete, end.  The planner decides on their resources."""

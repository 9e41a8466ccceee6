"""What the planner is given (a snapshot), what it answers (a plan), and what types of jobs and policies mean."""

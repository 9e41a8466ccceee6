"""What a round reads: the snapshot that the planner is given, and what it is made of."""

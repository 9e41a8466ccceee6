"""The input of a round: the snapshot for the planner, and the readers of its parts."""

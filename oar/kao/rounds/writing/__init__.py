"""The data that a round writes: the plan, moves of jobs, predictions, changes of walltimes."""

"""What can be done with nodes and resources; ``nodes`` moves them from state to state."""

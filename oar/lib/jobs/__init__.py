"""What can be done with jobs that exist, and with their queues; ``lifecycle`` moves them from state to state."""

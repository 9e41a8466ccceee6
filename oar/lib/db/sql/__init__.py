"""What every statement stands on: connections, the running of statements, locks, notifications."""

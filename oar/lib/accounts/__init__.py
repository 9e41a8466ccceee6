"""What a user may use: limits on waiting jobs."""

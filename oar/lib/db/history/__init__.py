"""What happened: events, the feed, accounting, usage, changes of policy."""

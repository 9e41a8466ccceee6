"""``schedule(snapshot) -> plan``: pure, without database, clock, environment."""

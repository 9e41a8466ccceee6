"""What handlers work with: the service, what is new in the database, what is kept of answers."""

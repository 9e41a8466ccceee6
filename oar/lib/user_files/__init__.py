"""Files of users, read and written by programs that run as the user."""

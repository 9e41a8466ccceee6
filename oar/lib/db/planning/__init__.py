"""The scheduling rounds, their plan, and the dates that wake the server."""

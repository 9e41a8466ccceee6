"""Commands answered by a warm server: the program that the user starts, and the processes that answer it."""

"""The processes of the server. A module of the automaton reads the database and does the due work."""

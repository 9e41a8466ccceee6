"""The processes of the server; a module of the automaton looks at the database and does what is due."""

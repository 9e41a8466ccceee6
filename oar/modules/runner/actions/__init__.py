"""The actions of a bipbip, by module: launch, finish, kill, signal, suspend, resume, probe, sweep, tell, halt, wake."""

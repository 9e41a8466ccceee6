"""Jobs over HTTP: lists, one job, submissions, changes, estimates, output."""

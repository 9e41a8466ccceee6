"""Planning of what is not the case: estimates of submissions, jobs and machines with something changed."""

"""What a site adds to the planner: an order of jobs, external schedulers, plug-ins; and the check of their choices."""

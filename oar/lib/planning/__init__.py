"""SQL statements of the scheduler: the data that it reads and the plan that it writes."""

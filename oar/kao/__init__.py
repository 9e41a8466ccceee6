"""The scheduler: ``planner`` decides, ``rounds`` read the database, call the planner, and write what it decided."""

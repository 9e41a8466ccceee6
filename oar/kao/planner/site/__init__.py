"""Extensions of the planner by the site: job order, external schedulers, plug-ins; checks of their placements."""

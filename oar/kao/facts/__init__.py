"""Input and output of the planner (snapshot, plan), the types of jobs, the policies of queues, and work in steps."""

"""Resource availability over time: slots, spaces, usable resources by class of jobs, requests."""

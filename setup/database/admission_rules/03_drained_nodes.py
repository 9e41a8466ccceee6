# Keep jobs off nodes that are drained; a job that could only run there waits instead of being refused
properties_applied_after_validation = "drain='NO'"

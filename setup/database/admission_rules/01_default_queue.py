# Put a job that names no queue in the default queue
if not queue:
    queue = "default"

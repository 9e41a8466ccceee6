# Limit the walltime of jobs outside the queue admin; to turn it on: oaradmissionrules --modify 18 --enabled
LONGEST_WALLTIME = 7 * 24  # hours
if queue != "admin":
    for _, walltime in resource_request:
        if walltime and walltime > LONGEST_WALLTIME * 3600:
            reject(f"[ADMISSION RULE] Error: the walltime of a job is at most {LONGEST_WALLTIME} hours.")

# Set the default walltime
DEFAULT_WALLTIME = 7200
for alternative in resource_request:
    if not alternative[1]:
        alternative[1] = DEFAULT_WALLTIME
        print(f"[ADMISSION RULE] Set default walltime to {DEFAULT_WALLTIME}.")

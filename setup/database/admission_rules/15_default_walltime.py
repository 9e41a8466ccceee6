# Set the default walltime
DEFAULT_WALLTIME = 7200
for alternative in resource_request:
    if not alternative[1]:
        alternative[1] = DEFAULT_WALLTIME
        if not advance_reservation:  # there OAR tells the walltime, which depends on what is left
            print(f"[ADMISSION RULE] Set default walltime to {DEFAULT_WALLTIME}.")

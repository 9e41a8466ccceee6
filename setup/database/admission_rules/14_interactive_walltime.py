# Limit the walltime of interactive jobs
LONGEST_INTERACTIVE = 43200
if job_type == "INTERACTIVE" and not reservation_date:
    for alternative in resource_request:
        if alternative[1] and alternative[1] > LONGEST_INTERACTIVE:
            alternative[1] = LONGEST_INTERACTIVE
            print(f"[ADMISSION RULE] Walltime to big for an INTERACTIVE job so it is set to {LONGEST_INTERACTIVE}.")

# Refuse jobs of root and oar
if user in ("root", "oar") and not is_advance_reservation:
    reject("[ADMISSION RULE] root and oar users are not allowed to submit jobs.")

# Let only members of the group admin submit jobs in the admin queue
if queue == "admin" and not in_group(user, "admin"):
    reject("[ADMISSION RULE] Only member of the group admin can submit jobs in the admin queue")

"""Keys of PostgreSQL's advisory locks: a class and a number each.

See docs/design/locks.rst, "Advisory locks".
"""

#: Classes: "OAR" for the server and for jobs, "OAS" for programs of which one may run at a time, "OAU" for users,
#: "OAB" for projects with a budget.
JOB_LOCK_CLASS = 0x4F4152
PROGRAM_LOCK_CLASS = 0x4F4153
USER_LOCK_CLASS = 0x4F4155
BUDGET_LOCK_CLASS = 0x4F4142

SERVER_LOCK = (JOB_LOCK_CLASS, 0)
ROUND_LOCK = (PROGRAM_LOCK_CLASS, 2)
ACCOUNTING_LOCK = (PROGRAM_LOCK_CLASS, 3)
SCHEMA_LOCK = (PROGRAM_LOCK_CLASS, 4)
PURGE_LOCK = (PROGRAM_LOCK_CLASS, 5)
RESERVATION_LIMIT_LOCK = (PROGRAM_LOCK_CLASS, 6)
POLICY_LOCK = (PROGRAM_LOCK_CLASS, 7)
PHOENIX_LOCK = (PROGRAM_LOCK_CLASS, 8)


def job_lock(job_id: int) -> tuple[int, int]:
    """Return the key of the lock that allows only one action at a time on a job."""
    return JOB_LOCK_CLASS, job_id & 0x7FFFFFFF

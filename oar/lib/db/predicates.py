"""Conditions on a row ``j`` of ``jobs`` that many statements share."""

from oar.lib.jobs.states import FINAL, JobState

#: The job has not ended.  The partial indexes of live jobs are proved by it (docs/design/schema.rst, "Live rows").
LIVE = f"j.state IN ({', '.join(repr(str(state)) for state in JobState if state not in FINAL)})"
#: The job has ended.
ENDED = "j.state IN ('Terminated', 'Error')"
#: The job is no frame of an advance reservation: those have no processes, and scheduling passes alone move them.
NO_FRAME = "NOT EXISTS (SELECT 1 FROM reservations v WHERE v.frame_id = j.job_id AND v.frame_id <> 0)"

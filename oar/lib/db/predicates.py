"""Conditions on a row ``j`` of ``jobs`` that many statements have."""

#: The job has not ended.  The partial indexes of live jobs are proved by it; written exactly so
#: (docs/design/schema.rst, "Live rows").
LIVE = "j.state <> 'Terminated' AND j.state <> 'Error'"
#: The job has ended.
ENDED = "j.state IN ('Terminated', 'Error')"

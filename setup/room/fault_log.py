"""The log of a room's faults: which generation of the server has written about jobs, and when one took over.

The dates are those of PostgreSQL. All machines of a room have the same clock.
"""

from __future__ import annotations

from typing import NamedTuple

from .layout import Room
from .load import query

FORGET = "DROP SCHEMA IF EXISTS fault_log CASCADE;"
#: Records the generation of each session that writes about jobs, and each take-over.
RECORD = """
CREATE SCHEMA fault_log;
CREATE TABLE fault_log.writes (id bigserial, generation bigint, session text, at timestamptz);
CREATE TABLE fault_log.take_overs (generation bigint, server text, at timestamptz);
CREATE FUNCTION fault_log.record() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO fault_log.writes (generation, session, at)
    SELECT substring(name FROM ' g([0-9]+)')::bigint, name, clock_timestamp()
    FROM current_setting('application_name') name;
    RETURN NULL;
END $$;
CREATE FUNCTION fault_log.record_take_over() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO fault_log.take_overs VALUES (NEW.generation, NEW.server_name, clock_timestamp());
    RETURN NULL;
END $$;
CREATE TRIGGER fault_log AFTER UPDATE ON server_generation FOR EACH ROW
    WHEN (NEW.generation <> OLD.generation) EXECUTE FUNCTION fault_log.record_take_over();
""" + "".join(
    f"CREATE TRIGGER fault_log AFTER INSERT OR UPDATE ON {table} EXECUTE FUNCTION fault_log.record();"
    for table in ("jobs", "job_runs", "event_logs", "assigned_resources")
)
#: Writes that were committed after one of a later generation. PostgreSQL must have track_commit_timestamp.
INTERLEAVED = """
SELECT * FROM (
    SELECT generation, max(generation) OVER (ORDER BY pg_xact_commit_timestamp(xmin), generation) AS latest
    FROM fault_log.writes WHERE generation IS NOT NULL) w
WHERE generation < latest"""
GENERATIONS = """
SELECT DISTINCT substring(application_name FROM ' g([0-9]+)') FROM pg_stat_activity
WHERE application_name ~ ' g[0-9]+'"""
#: The newest take-over after a date: seconds from the date to it, and from it to the first write of the meta-scheduler.
_NEWEST = """
SELECT t.server, extract(epoch FROM t.at) - {since}, extract(epoch FROM w.at - t.at)
FROM fault_log.take_overs t
LEFT JOIN (SELECT generation, min(at) AS at FROM fault_log.writes WHERE session LIKE 'oar:meta_sched%'
           GROUP BY generation) w USING (generation)
WHERE t.at > to_timestamp({since}) ORDER BY t.at DESC LIMIT 1"""


class TakeOver(NamedTuple):
    """A take-over, by the dates of PostgreSQL."""

    server: str
    seconds: float  #: from the fault to the new generation
    round_seconds: float | None  #: from the new generation to the first job that its meta-scheduler changed

    def __str__(self) -> str:
        """Return a sentence for the report."""
        begin = "" if self.round_seconds is None else f", first job scheduled {self.round_seconds:.2f} s later"
        return f"{self.server} took over after {self.seconds:.2f} s{begin}"


def now(room: Room) -> float:
    """Return the date of PostgreSQL, in seconds. Raises RoomError."""
    return float(query(room, "SELECT extract(epoch FROM clock_timestamp())")[0][0])


def newest(room: Room, since: float) -> TakeOver | None:
    """Return the newest take-over since a date, None if there was none. Raises RoomError."""
    rows = query(room, _NEWEST.format(since=repr(since)))
    return _take_over(*rows[0]) if rows else None


def _take_over(server: str, seconds: str, round_seconds: str) -> TakeOver:
    return TakeOver(server, float(seconds), float(round_seconds) if round_seconds else None)

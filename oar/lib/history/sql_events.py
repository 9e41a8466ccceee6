"""The event log (``tx.events``) of jobs and nodes. NodeChangeState acts on open events."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from oar.lib.bus.messages import Topic
from oar.lib.db.statements import About, Prepared, Row, Table
from oar.lib.history.event_types import REFUSALS, EventType, refusal_prefix
from oar.lib.history.records import Event
from oar.lib.jobs.records import LaunchFailure

_COLUMNS = "e.event_id, e.type, e.job_id, e.date, e.description, e.to_check"
#: The administrators get at most one mail about a fault in this time, in seconds.
MAIL_SECONDS = 86400

#: Events to act on, oldest first.
_PENDING = Prepared(f"""
    SELECT {_COLUMNS} FROM event_logs e WHERE e.to_check = 'YES' AND e.event_id > %s ORDER BY e.event_id LIMIT %s""")
#: Those of some events that are still to be acted on and that nobody else has in hand.
_CLAIM = Prepared("""
    SELECT event_id FROM event_logs WHERE event_id = ANY(%s) AND to_check = 'YES' ORDER BY event_id
    FOR UPDATE SKIP LOCKED""")
#: Events of some types that are to be acted on, oldest first.
_OPEN = Prepared(
    f"SELECT {_COLUMNS} FROM event_logs e WHERE e.to_check = 'YES' AND e.type = ANY(%s) ORDER BY e.event_id"
)
#: The events of one type that are to be acted on.
_CLAIM_TYPE = Prepared("""
    SELECT event_id FROM event_logs WHERE to_check = 'YES' AND type = %s ORDER BY event_id FOR UPDATE SKIP LOCKED""")
_DONE = Prepared("UPDATE event_logs SET to_check = 'NO' WHERE event_id = ANY(%s)")
#: Which jobs have events of which types.
_HAVING = Prepared("SELECT DISTINCT job_id, type FROM event_logs WHERE job_id = ANY(%s) AND type = ANY(%s)")
#: Events of jobs, with their hosts.
_OF_JOBS = f"""
    SELECT {_COLUMNS}, ARRAY(
        SELECT h.hostname FROM event_log_hostnames h WHERE h.event_id = e.event_id ORDER BY h.hostname)
    FROM event_logs e WHERE e.job_id = ANY(%s) ORDER BY e.event_id"""
#: Events of some types of one job since a date.
_OF_TYPES = f"""
    SELECT {_COLUMNS} FROM event_logs e WHERE e.job_id = %s AND e.type = ANY(%s) AND e.date >= %s ORDER BY e.event_id"""
#: Events of jobs of some types since a date, once for each node that they name.
_FAILURES = Prepared("""
    SELECT e.event_id, e.date, e.job_id, j.job_user, j.queue_name, COALESCE(h.hostname, '')
    FROM event_logs e
    CROSS JOIN LATERAL (SELECT job_user, queue_name FROM jobs WHERE job_id = e.job_id LIMIT 1) j
    LEFT JOIN LATERAL (SELECT hostname FROM event_log_hostnames WHERE event_id = e.event_id LIMIT 1000) h ON true
    WHERE e.type = ANY(%s) AND e.date >= %s ORDER BY e.event_id, h.hostname""")
#: Events behind one, up to and including another.
_BETWEEN = (
    f"SELECT {_COLUMNS} FROM event_logs e WHERE e.event_id > %s AND e.event_id <= %s ORDER BY e.event_id LIMIT %s"
)
#: The newest events that satisfy some conditions.
_LATEST = f"SELECT {_COLUMNS} FROM event_logs e WHERE {{}} ORDER BY e.event_id DESC LIMIT %s"
_OF_JOB, _OF_TYPE, _BEFORE = "e.job_id = %s", "e.type = %s", "e.event_id < %s"
#: All but the refused submissions of other users.
_VISIBLE = f"(e.type NOT IN ({', '.join(f'{str(type_)!r}' for type_ in REFUSALS)}) OR starts_with(e.description, %s))"
_ON_NODE = "e.event_id IN (SELECT event_id FROM event_log_hostnames WHERE hostname = %s)"
_HOSTS = Prepared(
    "SELECT event_id, hostname FROM event_log_hostnames WHERE event_id = ANY(%s) ORDER BY event_id, hostname"
)
#: Events of nodes since a date.
_OF_NODES = f"""
    SELECT h.hostname, {_COLUMNS} FROM event_log_hostnames h JOIN event_logs e USING (event_id)
    WHERE h.hostname = ANY(%s) AND e.date >= %s ORDER BY h.hostname, e.event_id"""
#: The last events of each node.
_LAST_OF_NODES = f"""
    SELECT h.hostname, {_COLUMNS} FROM unnest(%s::text[]) AS node (name)
    CROSS JOIN LATERAL (
        SELECT hostname, event_id FROM event_log_hostnames WHERE hostname = node.name
        ORDER BY event_id DESC LIMIT %s) h
    JOIN event_logs e USING (event_id) ORDER BY h.hostname, e.event_id"""
#: The date and the text of the last event of a type of each node.
_LAST_TEXTS = """
    SELECT node.name, e.date, e.description FROM unnest(%s::text[]) AS node (name)
    CROSS JOIN LATERAL (
        SELECT e.date, e.description FROM event_log_hostnames h JOIN event_logs e USING (event_id)
        WHERE h.hostname = node.name AND e.type = %s ORDER BY h.event_id DESC LIMIT 1) e"""
_NUMBER = "SELECT count(*) FROM event_logs WHERE type = %s AND date > %s"
_AWAITED = Prepared("""
    SELECT EXISTS (SELECT FROM event_logs WHERE job_id = ANY(%(ids)s) AND type = %(type)s AND to_check = 'YES'),
        EXISTS (SELECT FROM launch_holds WHERE trial_job = ANY(%(ids)s))""")
_IS_OPEN = Prepared("SELECT EXISTS (SELECT FROM event_logs WHERE job_id = %s AND type = %s AND to_check = 'YES')")
_INSERT = Prepared("""
    INSERT INTO event_logs (type, job_id, date, description, to_check) VALUES (%s, %s, %s, %s, %s)
    RETURNING event_id""")
_INSERT_MANY = Prepared("""
    INSERT INTO event_logs (type, job_id, date, description, to_check)
    SELECT type, job_id, %s, description, %s
    FROM unnest(%s::text[], %s::bigint[], %s::text[]) WITH ORDINALITY AS new (type, job_id, description, place)
    ORDER BY place""")
_INSERT_HOSTS = Prepared(
    "INSERT INTO event_log_hostnames (event_id, hostname) SELECT %s, host FROM unnest(%s::text[]) host"
)


def _event(row: Sequence[Any], hosts: Collection[str] = ()) -> Event:
    return Event(row[0], row[1], row[2], row[3], row[4], row[5] == "YES", tuple(hosts))


def _by_job(rows: Iterable[Row]) -> dict[int, list[Event]]:
    events: dict[int, list[Event]] = defaultdict(list)
    for row in rows:
        events[row[2]].append(_event(row, row[6]))
    return events


class Events(Table):
    """Rows of ``event_logs`` and ``event_log_hostnames``."""

    #: A question that views ask with others.
    OF_JOBS = About(_OF_JOBS, _by_job)

    def add(
        self, type_: str, job_id: int, description: str, *, to_check: bool = False, hosts: Collection[str] = ()
    ) -> int:
        """Write an event; return its id. ``to_check``: NodeChangeState must act on it."""
        row = (str(type_), job_id, self._tx.now, description, "YES" if to_check else "NO")
        event_id: int = self._tx.value(_INSERT, row)
        self._changed(Topic.EVENTS)
        if hosts:
            self._tx.execute(_INSERT_HOSTS, (event_id, sorted(set(hosts))))
        return event_id

    def add_many(self, events: Sequence[tuple[str, int, str]], *, to_check: bool = False) -> None:
        """Write events without hosts, given as ``(type, job id, description)``; ``to_check`` as in ``add``."""
        if events:
            types, jobs, texts = (list(column) for column in zip(*events, strict=True))
            flag = "YES" if to_check else "NO"
            self._tx.execute(_INSERT_MANY, (self._tx.now, flag, [str(type_) for type_ in types], jobs, texts))
            self._changed(Topic.EVENTS)

    def pending(self, limit: int = 1000, *, after: int = 0) -> list[Event]:
        """Return the oldest open events with an id above ``after``."""
        return self._with_hosts(self._tx.rows(_PENDING, (after, limit)))

    def open(self, types: Collection[str]) -> list[Event]:
        """Return the open events of some types, oldest first."""
        return self._with_hosts(self._tx.rows(_OPEN, ([str(name) for name in types],)))

    def claim(self, ids: Collection[int]) -> set[int]:
        """Lock and return the given events that are still open; skip events that another transaction has locked."""
        return set(self._tx.column(_CLAIM, (list(ids),)))

    def take_hosts(self, type_: str) -> set[str]:
        """Return the hosts of the open events of a type, and mark these events as done."""
        ids = self._tx.column(_CLAIM_TYPE, (str(type_),))
        if not ids:
            return set()
        self.done(ids)
        return {host for _, host in self._tx.rows(_HOSTS, (ids,))}

    def having(self, ids: Collection[int], types: Collection[str]) -> set[tuple[int, str]]:
        """Return the pairs of a job and a type, among the given ones, for which an event exists."""
        return {(row[0], row[1]) for row in self._tx.rows(_HAVING, (list(ids), [str(name) for name in types]))}

    def is_open(self, job_id: int, type_: str) -> bool:
        """Return whether a job has an open event of a type."""
        return bool(self._tx.value(_IS_OPEN, (job_id, str(type_))))

    def awaited_starts(self, ids: Collection[int], type_: str) -> tuple[bool, bool]:
        """Return whether any of the jobs has an open event of a type, and whether any is the trial job of a hold."""
        is_open, is_trial = self._tx.rows(_AWAITED, {"ids": list(ids), "type": str(type_)})[0]
        return is_open, is_trial

    def clear(self, job_id: int, type_: str) -> None:
        """Mark the open events of a type of a job as done."""
        self._tx.execute(
            "UPDATE event_logs SET to_check = 'NO' WHERE job_id = %s AND type = %s AND to_check = 'YES'",
            (job_id, str(type_)),
        )
        self._changed(Topic.EVENTS)

    def done(self, ids: Collection[int]) -> None:
        if ids:
            self._tx.execute(_DONE, (list(ids),))
            self._changed(Topic.EVENTS)

    def of_jobs(self, ids: Collection[int]) -> dict[int, list[Event]]:
        """Return the events of jobs, oldest first."""
        return _by_job(self._tx.rows(_OF_JOBS, (list(ids),)))

    def between(self, after: int, until: int, limit: int) -> list[Event]:
        """Return the events with ids above ``after``, up to ``until``, oldest first."""
        return self._with_hosts(self._tx.rows(_BETWEEN, (after, until, limit)))

    def latest(
        self,
        limit: int,
        *,
        job: int | None = None,
        type_: str | None = None,
        node: str | None = None,
        before: int | None,
        reader: str | None = None,
    ) -> list[Event]:
        """Return the newest events, newest first.

        The arguments restrict them to a job, a type, a node, or ids smaller than ``before``; None: no restriction.
        ``reader``: a user who does not see refused submissions of others, '' for nobody known.
        """
        own = None if reader is None else refusal_prefix(reader)
        filters = ((_OF_JOB, job), (_OF_TYPE, type_), (_ON_NODE, node), (_BEFORE, before), (_VISIBLE, own))
        conditions = [(text, value) for text, value in filters if value is not None]
        where = " AND ".join(text for text, _ in conditions) or "true"
        return self._with_hosts(self._tx.rows(_LATEST.format(where), (*(value for _, value in conditions), limit)))

    def of_types(self, job_id: int, types: Collection[str], since: int = 0) -> list[Event]:
        """Return the events of some types of a job since a date, oldest first."""
        return [_event(row) for row in self._tx.rows(_OF_TYPES, (job_id, [str(name) for name in types], since))]

    def failures(self, types: Collection[str], since: int) -> list[LaunchFailure]:
        """Return the events of some types since a date, oldest first, once for each node that they name."""
        return [LaunchFailure(*row) for row in self._tx.rows(_FAILURES, ([str(type_) for type_ in types], since))]

    def number_since(self, type_: str, date: int) -> int:
        """Return the number of events of a type after a date."""
        count: int = self._tx.value(_NUMBER, (str(type_), date))
        return count

    def was_mailed(self, fault: str) -> bool:
        """Return whether a mail about a fault was sent to the administrators within ``MAIL_SECONDS``."""
        mailed = self.of_types(0, [EventType.FAULT_MAILED], self._tx.now - MAIL_SECONDS + 1)
        return any(event.description == fault for event in mailed)

    def of_nodes(self, nodes: Collection[str], *, since: int = 0, last: int | None = None) -> dict[str, list[Event]]:
        """Return the events of nodes, oldest first: those since a date, or the ``last`` of each node."""
        if last is None:
            rows = self._tx.rows(_OF_NODES, (list(nodes), since))
        else:
            rows = self._tx.rows(_LAST_OF_NODES, (list(nodes), last))
        events: dict[str, list[Event]] = defaultdict(list)
        for host, *columns in rows:
            events[host].append(_event(columns, (host,)))
        return events

    def last_texts(self, nodes: Collection[str], type_: str) -> dict[str, tuple[int, str]]:
        """Return the date and the text of the last event of a type, by node."""
        rows = self._tx.rows(_LAST_TEXTS, (list(nodes), str(type_))) if nodes else []
        return {node: (date, text) for node, date, text in rows}

    def _with_hosts(self, rows: Sequence[Row]) -> list[Event]:
        hosts: dict[int, list[str]] = defaultdict(list)
        for event_id, host in self._tx.rows(_HOSTS, ([row[0] for row in rows],)) if rows else ():
            hosts[event_id].append(host)
        return [_event(row, hosts.get(row[0], ())) for row in rows]

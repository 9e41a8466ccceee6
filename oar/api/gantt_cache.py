"""What goes on, and what is planned: whole, or what has changed since the client asked before."""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.api.responses import encoded
from oar.lib.facts.states import NOT_STARTED
from oar.lib.views.gantt_chunks import ranges

if TYPE_CHECKING:
    from oar.lib.db.history.gantt_days import DrawnJob, DrawnState
    from oar.lib.db.transaction import Transaction

Record = Mapping[str, Any]

#: Lists of jobs, which are told job by job; all other parts are told whole if anything in them has changed.
OF_JOBS = ("running", "planned")
#: Moments that are remembered.  Pages ask within a second of each other: those that look on need few of them.
MOST_MOMENTS = 24


class Moment(NamedTuple):
    """What was told at a moment, as far as it takes to see what has changed since."""

    jobs: Mapping[int, int]  #: a number for each job that is another one if anything of it has changed
    parts: Mapping[str, int]  #: the same for each other part


class Moments:
    """The last moments of which somebody was told, by the cursor that the answer named."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Moment] = OrderedDict()
        self._lock = threading.Lock()

    def answer(self, record: Record, since: str | None) -> dict[str, Any]:
        """Return a record as it is told to who knows what ``since`` names; all of it if that is not remembered."""
        moment = _moment(record)
        cursor = f"{_number([*moment.jobs.items()]):x}-{_number(moment.parts):x}"
        former = self._exchange(cursor, moment, since)
        if former is None:
            return {**record, "gone": [], "since": None, "cursor": cursor}
        return {**changed(record, moment, former), "since": since, "cursor": cursor}

    def _exchange(self, cursor: str, moment: Moment, since: str | None) -> Moment | None:
        """Remember a moment; return the one that a client knows."""
        with self._lock:
            former = self._kept.get(since) if since else None
            self._kept[cursor] = moment
            self._kept.move_to_end(cursor)
            while len(self._kept) > MOST_MOMENTS:
                self._kept.popitem(last=False)
        return former


def changed(record: Record, moment: Moment, former: Moment) -> dict[str, Any]:
    """Return the jobs that are new or other than they were, the ids of those that are gone; null for what stayed."""
    jobs = {
        name: [job for job in record[name] if former.jobs.get(job["id"]) != moment.jobs[job["id"]]] for name in OF_JOBS
    }
    parts = {name: record[name] if former.parts[name] != digest else None for name, digest in moment.parts.items()}
    return {**jobs, **parts, "gone": sorted(former.jobs.keys() - moment.jobs.keys())}


def live_record(tx: "Transaction") -> dict[str, Any]:
    """Return the jobs on resources, those whose start is planned, and the states of resources that last."""
    running, planned = tx.gantt_days.running(), tx.gantt_days.planned()
    reasons = tx.job_waits.reasons([job.id for job in planned])
    return {
        "running": [_job_item(job) for job in running],
        "planned": [
            {**_job_item(job), "reason": reasons[job.id].code if job.id in reasons else None} for job in planned
        ],
        "suspended": [
            {"job": job, "from": begin, "to": end or None}
            for job, begin, end in tx.gantt_days.pauses([job.id for job in running])
        ],
        "states": [_state_item(state) for state in tx.gantt_days.open_states()],
        "reservations": [
            {
                "id": each.number,
                "name": each.name or None,
                "user": each.owner,
                "from": each.start,
                "to": each.end,
                "resources": list(ranges(sorted(each.resources))),
                "missing": list(ranges(sorted(each.missing))),
            }
            for each in tx.advance_reservations.planned()
            if each.resources
        ],
    }


def _moment(record: Record) -> Moment:
    jobs = {job["id"]: _number(job) ^ place for place, name in enumerate(OF_JOBS) for job in record[name]}
    return Moment(jobs, {name: _number(part) for name, part in record.items() if name not in OF_JOBS})


def _number(value: object) -> int:
    """Return a number for a value, of 64 bits; another process gives it another one, so its cursors mean nothing here.

    A digest takes as long as the answer, for thousands of jobs.
    """
    return hash(encoded(value)) & 0xFFFF_FFFF_FFFF_FFFF


def _job_item(job: "DrawnJob") -> dict[str, object]:
    return {
        "id": job.id,
        "name": job.name or None,
        "user": job.user,
        "project": job.project,
        "queue": job.queue,
        "types": job.types.split(),
        "state": job.state,
        "kind": job.kind,
        "submitted": job.submitted,
        "start": job.start,
        "walltime": job.walltime,
        "is_planned": job.state in NOT_STARTED,
        "resources": list(ranges(job.resources)),
    }


def _state_item(state: "DrawnState") -> dict[str, object]:
    return {"state": state.state, "from": state.start, "resources": list(ranges(state.resources))}

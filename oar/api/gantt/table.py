"""Jobs on nodes in a period as a list, what lies over and below them as tables: the Gantt page without scripts."""

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.api.gantt_ import LAST_DAY
from oar.api.service import Asking
from oar.lib.facts.errors import BadRequest
from oar.lib.facts.states import NOT_STARTED
from oar.lib.views.gantt_chunks import DAY
from oar.lib.views.occupancy_curve import occupancy_curve

if TYPE_CHECKING:
    from oar.lib.db.history.gantt_days import DrawnJob

#: Jobs that are listed; nodes that are named of each.
MOST_JOBS = 100
MOST_NODES = 6
#: Days of the table of days.
MOST_DAYS = 92
#: Seconds before and after now that are shown if nobody asks for others: those of the diagram.
BEFORE, AFTER = DAY * 6 // 10, DAY * 4 // 10


class Period(NamedTuple):
    """From a date to a later one."""

    begin: int
    end: int


def period_of(asked: Mapping[str, str]) -> Period:
    """Return the period that an address asks for.  Raises BadRequest."""
    now = int(time.time())
    if not asked.get("from"):
        return Period(now - BEFORE, now + AFTER)
    begin, end = _date(asked["from"]), _date(asked.get("to") or str(int(time.time())))
    if not begin < end:
        raise BadRequest("a period goes from a date to a later one")
    return Period(begin, end)


def gantt_table(who: Asking, period: Period) -> dict[str, Any]:
    """Return jobs of a period by their start, those that are planned among them; of many those that end first."""
    with who.database.snapshot() as tx:
        found = tx.gantt_days.first_ended(period.begin, period.end, MOST_JOBS + 1)
        found += tx.gantt_days.first_live(period.begin, period.end, MOST_JOBS + 1 - len(found))
        shown = sorted(found[:MOST_JOBS], key=lambda job: (job.start, job.id))
        rows = tx.resources.select({number for job in shown for number in job.resources})
    names = {row.id: row.network_address for row in rows}
    return {
        "jobs": [_record(job, names) for job in shown],
        "is_cut": len(found) > MOST_JOBS,
    }


def days_table(who: Asking, period: Period) -> list[dict[str, Any]]:
    """Return the days (UTC) of a period, the last ones of a long one, each with shares of the resources in percents."""
    end = -(-period.end // DAY)
    begin = max(period.begin // DAY, end - MOST_DAYS)
    with who.database.snapshot() as tx:
        curve = occupancy_curve(tx, begin * DAY, DAY, end - begin)
    whole = curve["resources"] or 1
    return [
        {
            "date": (begin + place) * DAY,
            **{name: round(100 * curve[name][place] / whole) for name in ("used", "planned", "unusable")},
        }
        for place in range(end - begin)
    ]


def plan_table(who: Asking, date: int) -> dict[str, Any]:
    """Return what the last round up to a date had planned, and what came of it; `date` of it is 0 if none is kept."""
    with who.database.snapshot() as tx:
        made = tx.former_plans.last(date)
        found = tx.former_plans.jobs(made, MOST_JOBS + 1) if made else []
    return {"date": made, "jobs": found[:MOST_JOBS], "is_cut": len(found) > MOST_JOBS}


def _date(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and int(text) <= LAST_DAY * DAY):
        raise BadRequest(f"{text!r} is no date in epoch seconds")
    return int(text)


def _end(job: "DrawnJob") -> int:
    return job.stop or (job.start + job.walltime if job.walltime else 0)


def _record(job: "DrawnJob", names: Mapping[int, str]) -> dict[str, Any]:
    nodes = _distinct(names.get(number, "") for number in job.resources)
    return {
        "id": job.id,
        "name": job.name,
        "user": job.user,
        "queue": job.queue,
        "state": job.state,
        "start": job.start,
        "end": _end(job),
        "is_planned": job.state in NOT_STARTED,
        "nodes": nodes[:MOST_NODES],
        "more": max(0, len(nodes) - MOST_NODES),
    }


def _distinct(names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name]

"""All formats of oarstat say the same of the same jobs."""

import json
from typing import Any

import pytest

from oar.cli.common import render
from oar.lib.base.times import format_date, format_duration
from oar.lib.history.event_types import EventType
from oar.lib.jobs.ends import Cause, EndCode, format_exit_code, memory_size
from oar.lib.jobs.records import NodeUsage
from oar.lib.jobs.states import JobState, JobType, Reservation
from tests.db.test_oarstat import GANTT, NOW, Cluster, cluster
from tests.plain import same_in_all_formats

__all__ = ["cluster"]

#: A text with all that some format has to protect.
AWKWARD = "it's \\ <é> \"&amp;\" 'no': - # %d $x @y\n  state = Running\t~"


@pytest.fixture
def varied(cluster: Cluster) -> list[int]:
    """Jobs of all kinds: in each something is set that is empty in the others."""
    one, two, three, four = cluster.resources
    ended = cluster.job(JobState.TERMINATED, on=[one, two, three], name=AWKWARD, command=AWKWARD)
    running = cluster.job(JobState.RUNNING, on=[one], types=["besteffort", "idempotent"], properties=None, name="12")
    waiting = cluster.job(after=[ended, running], project="no", initial_request=AWKWARD)
    reserved = cluster.job(reservation=Reservation.SCHEDULED)
    interactive = cluster.job(JobState.ERROR, job_type=JobType.INTERACTIVE, command=None)
    cluster.predict(waiting, NOW + 60, [two])
    cluster.predict(reserved, NOW + 3600, [three, four])
    cluster.execute("UPDATE jobs SET resubmit_job_id = %s WHERE job_id = %s", ended, waiting)
    cluster.execute("UPDATE jobs SET exit_code = 768 WHERE job_id = %s", ended)
    with cluster.database.begin() as tx:
        tx.events.add(EventType.WALLTIME, ended, AWKWARD)
        tx.job_runs.store_ends(
            {ended: Cause(EndCode.EXIT_STATUS, {"status": 3}), interactive: Cause(EndCode.NODE_LOST)}
        )
        tx.job_runs.add_usage([(ended, NodeUsage("node-1", 2, 190.25, 2**30, None, 0, 0))])
    return [ended, running, waiting, reserved, interactive]


@pytest.mark.parametrize(
    "words",
    [[], ["-f"], ["-s"], ["-e"], ["-p"], ["--explain"], ["--start"], ["--usage"], ["--fields", "id:Nr,name,types,end"]],
    ids=" ".join,
)
def test_every_format_holds_the_same(cluster: Cluster, varied: list[int], words: list[str]) -> None:
    documents = [cluster.shows(*varied, *words, option) for option in ("-J", "-Y", "-X", "-D")]
    assert set(same_in_all_formats(*documents)) <= set(map(str, varied))


def test_the_gantt_is_the_same_in_every_format(cluster: Cluster, varied: list[int]) -> None:
    documents = [cluster.shows("-g", GANTT, option) for option in ("-J", "-Y", "-X", "-D")]
    assert set(same_in_all_formats(*documents)["jobs"]) == set(map(str, varied[:3]))


def test_the_text_in_full_holds_what_the_record_holds(cluster: Cluster, varied: list[int]) -> None:
    records = json.loads(cluster.shows(*varied, "-J"))
    shown = dict(zip(map(str, varied), cluster.shows("-f", *varied).split("\n\n"), strict=False))
    for job_id, record in records.items():
        head, *lines = shown[job_id].splitlines()
        values = dict(line.removeprefix("    ").split(" = ", 1) for line in lines if line.startswith("    "))
        assert head == f"Job_Id: {record['id']}"
        assert values == {key: render.visible(value) for key, value in _in_full(record) if value is not None}
        assert (
            lines[-len(record["events"]) :]
            == [
                f"{format_date(each['date'])}> {each['type']}: {render.visible(each['description'])}"
                for each in record["events"]
            ]
            or record["events"] == []
        )


def _in_full(record: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Return the lines that the text in full has for a record; None for one that is not there."""
    code, end, use = record["exit_code"], record["end"], record["cpu_efficiency"]
    reserved = record.get("reserved_resources")
    same = [
        *("name", "project", "owner", "state", "wanted_resources", "queue", "command", "launchingDirectory"),
        *("stdout_file", "stderr_file", "jobType", "properties", "reservation", "cpuset_name", "initial_request"),
        "message",
    ]
    return [
        *[(key, record[key]) for key in same],
        *[(f"job_{key}", str(record[key])) for key in ("array_id", "array_index")],
        ("types", ", ".join(record["types"])),
        ("dependencies", " ".join(map(str, record["dependencies"]))),
        ("assigned_resources", "+".join(map(str, record["assigned_resources"]))),
        ("assigned_hostnames", "+".join(record["assigned_network_address"])),
        ("exit_code", None if code is None else format_exit_code(code)),
        ("reserved_resources", None if reserved is None else "+".join(map(str, reserved))),
        ("walltime", format_duration(record["walltime"])),
        *[(key, format_date(record[key]) or None) for key in ("submissionTime", "startTime", "stopTime")],
        ("scheduledStart", format_date(record["scheduledStart"] or 0) or "no prediction"),
        ("resubmit_job_id", str(record["resubmit_job_id"])),
        ("resubmitted_as", str(record["resubmitted_as"]) if record["resubmitted_as"] else None),
        ("outcome", record["outcome"] or None),
        ("cause", f"{end['cause']}: {end['sentence']}" if end else None),
        ("advice", (end["advice"] or None) if end else None),
        ("cpu_efficiency", None if use is None else f"{100 * use:.1f}%"),
        ("max_rss", None if record["max_rss"] is None else memory_size(record["max_rss"])),
        ("events", ""),
    ]

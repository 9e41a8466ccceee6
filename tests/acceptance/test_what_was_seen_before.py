"""Who knows Monika and DrawGantt only finds on our pages everything that they show, of the same database."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from tests.acceptance.harness import Cluster, checked, tool, wait_until
from tests.acceptance.old_programs import OldPrograms

NODES = ("node-1", "node-2", "node-3", "node-4")
#: What Monika writes into the box of a resource, by what it is for us.
BOXES = {"free": "Free", "draining": "Drain", "standby": "StandBy", "absent": "Absent"} | {
    "suspected": "Suspected",
    "dead": "Down",
}
HOUR = 3600
PLANNED = "SELECT 1 FROM gantt_jobs_predictions_visu WHERE start_time > extract(epoch FROM now()) + 60"

#: The jobs of this test; others are left on a cluster that tests share.
JOBS = ("past", "sim", "later")
FRAMES = "SELECT frame_id FROM reservations WHERE frame_id <> 0"


@pytest.fixture
def site(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with pages, with jobs of several kinds and nodes in several states, of which nothing changes."""
    root, alice = cluster.as_user("root"), cluster.as_user("alice")
    checked(tool("api", "start", room=cluster.room))
    for options in (
        "-n past -t besteffort -l core=1 true",
        "-n sim -t container -l network_address=1/core=2,walltime=2 'sleep 900'",
    ):
        job = alice.submit(options)
        cluster.wait_for_state(job, "Terminated" if "past" in options else "Running")
    for setting in ("-h node-3 -s Absent", "-h node-4 -s Suspected", "-h node-2 --drain on"):
        root.run(f"oarnodesetting {setting}")
    alice.submit("-n later -l core=1,walltime=0:30 'sleep 9'")
    wait_until(lambda: cluster.sql(PLANNED), "a start is planned")
    cluster.server.do("stop")
    yield cluster
    cluster.server.do("start")
    root.run("oarnodesetting -h node-2 --drain off")
    checked(tool("api", "stop", room=cluster.room))


def ask(site: Cluster, path: str) -> Any:
    """What the service of the pages tells."""
    return json.loads(site.as_user("root").run(f"curl -sf 'http://127.0.0.1:6668/v1/{path}'"))


def page(site: Cluster, path: str) -> str:
    """A page as it is sent, where links lead."""
    return site.as_user("root").run(f"curl -sfL 'http://127.0.0.1:6668/ui/{path}'")


def seconds(walltime: str) -> int:
    """The seconds of Monika's walltime."""
    hours, minutes, rest = map(int, walltime.split(":"))
    return hours * HOUR + minutes * 60 + rest


def date(text: str) -> int | None:
    """A date as Monika writes it, in the zone of the room."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) if text[:1].isdigit() else None


def test_all_that_monika_and_drawgantt_show_is_on_our_pages(site: Cluster, programs: OldPrograms) -> None:
    check_boxes(site, programs)
    check_jobs(site, programs)
    check_drawing(site, programs)


def check_boxes(site: Cluster, programs: OldPrograms) -> None:
    """Each box of Monika's grid is one of ours."""
    grid = ask(site, "grid")
    for node in grid["items"]:
        states = [grid["letters"][mark] for mark in node["marks"]]
        jobs = {place: job for first, count, job in node["held"] for place in range(first, first + count)}
        boxes = [str(jobs[place]) if state == "used" else BOXES[state] for place, state in enumerate(states)]
        assert programs.monika_grid()[node["name"]] == boxes
        assert f"<bdi>{node['name']}</bdi>" in page(site, f"monika.cgi?node={node['name']}")
    summary = re.search(r"resource_id (\d+) (\d+) (\d+)", programs.monika())
    assert summary
    total = grid["total"]
    assert (int(summary[2]), int(summary[3])) == (total["used"], sum(total.values()))


def check_jobs(site: Cluster, programs: OldPrograms) -> None:
    """Each column of Monika's table is told of each of its jobs, and its link leads to the job."""
    jobs = {job["id"]: job for job in ask(site, "jobs?details=true&limit=100")["items"]}
    rows = programs.monika_jobs()
    assert {int(row["Id"]) for row in rows} == jobs.keys()
    for row in rows:
        job = jobs[int(row["Id"])]
        same = {"User": "user", "State": "state", "Queue": "queue", "Name": "name", "Reservation": "reservation"}
        assert {name: row[name] for name in same} == {name: job[key] for name, key in same.items()}
        assert row["Type"].split()[0] == job["kind"]
        assert row["Properties"] == job["properties"]
        assert seconds(row["Walltime"]) == job["walltime"]
        assert date(row["Submission Time"]) == job["submitted"]
        assert date(row["Start Time"]) == job["started"]
        assert date(row["Scheduled Start"]) == (job["planned"] or job["started"])
        assert job["resources_asked"] in row["wanted_resources"] or row["wanted_resources"] in job["resources_asked"]
        assert f"<b>{job['id']}</b>" in page(site, "jobs")
        assert job["name"] in page(site, f"monika.cgi?job={job['id']}")


def check_drawing(site: Cluster, programs: OldPrograms) -> None:
    """Each job of DrawGantt is drawn; ours with the same dates on as many resources, telling what its pop-up does.

    The frame of an advance reservation is a job for DrawGantt, and for us the reservation.
    """
    begin, end = site.now() - HOUR, site.now() + 4 * HOUR
    frames = {int(number) for (number,) in site.sql(FRAMES)}
    drawn = {job: told for job, told in programs.drawgantt(begin, end).items() if job not in frames}
    ours = {job["id"]: job for job in ask(site, f"gantt/nodes?node={','.join(NODES)}&from={begin}&to={end}")["jobs"]}
    assert drawn.keys() == ours.keys()
    mine = {number: text for number, text in drawn.items() if ours[number]["name"] in JOBS}
    assert len(mine) >= len(JOBS)
    for number, text in mine.items():
        told = dict(line.split(": ", 1) for line in text.split("|"))
        job, details = ours[number], ask(site, f"jobs/{number}")
        assert (told["User"], told["Name"], told["State"]) == (job["user"], job["name"], job["state"])
        assert (told["Kind"], told["Queue"], told["Project"]) == (details["kind"], details["queue"], details["project"])
        assert told["Types"] == ", ".join(details["types"])
        assert int(told["Resources"]) == sum(count for _, count in job["resources"])
        assert moment(told["Submission"]) == details["submitted"]
        assert moment(told["Start"]) == job["start"]
        assert moment(told["Stop"]) == job["end"]


def moment(text: str) -> int:
    """A date as DrawGantt writes it."""
    return int(parsedate_to_datetime(text).timestamp())

"""oar2trace: the past as a trace."""

import os
from pathlib import Path

import pytest

from oar.cli import oar2trace
from oar.lib.db.database import Database
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.states import JobState
from tests.builders import add_job, add_resources
from tests.db.console import Console

BEGIN = 1_900_000_000


@pytest.fixture
def past(database: Database) -> list[int]:
    """Return a job that was good, one that failed, one that was deleted, one that never ran, one that runs."""
    database._clock = lambda: BEGIN
    resources = add_resources(database, nodes=2, cores=2)
    good = add_job(database, JobState.TERMINATED, on=resources, walltime=7200)
    failed = add_job(database, JobState.TERMINATED, on=resources[:1], user="bob", queue="besteffort", after=[good])
    deleted = add_job(database, JobState.TERMINATED, on=resources[:2])
    never = add_job(database, JobState.ERROR)
    running = add_job(database, JobState.RUNNING, on=resources)
    with database.begin() as tx:
        for place, job_id in enumerate([good, failed, deleted]):
            dates = {"submission_time": BEGIN + place, "start_time": BEGIN + 10, "stop_time": BEGIN + 70}
            tx.jobs.update(job_id, exit_code=256 if job_id == failed else 0, **dates)
        tx.execute("DELETE FROM job_ends WHERE job_id = %s", (deleted,))
        tx.job_runs.store_ends({deleted: Cause(EndCode.DELETED)})
    return [good, failed, deleted, never, running]


def lines(console: Console, *options: object) -> tuple[list[str], list[list[str]]]:
    """Return the head of a trace, and the fields of its jobs."""
    result = console.type(oar2trace.main, "-f", "-", *options)
    assert (result.exit, result.err) == (0, "")
    written = result.out.splitlines()
    return (
        [line for line in written if line.startswith(";")],
        [line.split("\t" if "owf" in options else " ") for line in written if not line.startswith(";")],
    )


def test_each_ended_job_is_18_numbers(console: Console, past: list[int]) -> None:
    head, jobs = lines(console)
    good, failed, deleted, never, _ = past
    assert "; Version: 2.2" in head
    assert f"; UnixStartTime: {BEGIN}" in head
    assert "; MaxProcs: 4" in head
    assert "; MaxNodes: 2" in head
    assert head[-5:] == [
        "; Queue: 1 besteffort",
        "; Queue: 2 default",
        "; User: 1 alice",
        "; User: 2 bob",
        "; Group: 1 default",
    ]
    assert [job[0] for job in jobs] == [str(job_id) for job_id in (good, failed, deleted, never)]
    assert jobs[0] == f"{good} 0 10 60 4 -1 -1 4 7200 -1 1 1 1 -1 2 -1 -1 -1".split()
    assert jobs[1] == f"{failed} 1 9 60 1 -1 -1 1 3600 -1 0 2 1 -1 1 -1 {good} -1".split()
    assert (jobs[2][10], jobs[3][2:5], jobs[3][10]) == ("5", ["-1", "-1", "-1"], "5")
    assert {len(job) for job in jobs} == {18}


def test_pieces_and_bounds_choose_jobs(console: Console, past: list[int]) -> None:
    _, jobs = lines(console, "--chunk-size", 1, "-b", past[1], "-e", past[2])
    assert [int(job[0]) for job in jobs] == past[1:3]
    _, jobs = lines(console, "--to", "2020-01-01")
    assert jobs == []


def test_a_processor_may_be_a_value_of_a_property(console: Console, past: list[int]) -> None:
    head, jobs = lines(console, "-p", "network_address")
    assert "; MaxProcs: 2" in head
    assert [job[4] for job in jobs] == ["2", "1", "1", "-1"]


def test_an_anonymous_trace_names_nobody(console: Console, past: list[int]) -> None:
    head, _ = lines(console, "--anonymize")
    assert not any("alice" in line or "bob" in line for line in head)
    _, jobs = lines(console, "-m", "owf", "--anonymize")
    assert [job[9] for job in jobs[:2]] == ["1", "2"]


def test_our_own_columns_tell_the_resources(console: Console, past: list[int], database: Database) -> None:
    head, jobs = lines(console, "-m", "owf")
    with database.begin() as tx:
        first, *_, last = [resource.id for resource in tx.resources.all()]
    assert head[-1].split("\t")[1] == "submit"
    assert jobs[0][9:13] == ["alice", "default", "default", f"{first}-{last}"]
    assert {len(job) for job in jobs} == {16}


def test_a_trace_is_a_file_with_its_resources_beside(console: Console, past: list[int], tmp_path: Path) -> None:
    path, resources = tmp_path / "trace.swf", tmp_path / "resources.yaml"
    result = console.type(oar2trace.main, "-f", path, "--metadata-file", resources)
    assert (result.exit, result.out, result.err) == (0, "", "")
    assert path.read_text().count("\n") > len(past)
    assert "network_address: node-1" in resources.read_text()
    assert sorted(each.name for each in tmp_path.iterdir() if "trace" in each.name) == ["trace.swf"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["-f", "/nowhere/trace"], "[ERROR] Cannot write /nowhere/trace: No such file or directory."),
        (["-f", "-", "-m", "xml"], "[ERROR] xml is not a trace format: use swf or owf (-m)."),
        (["-f", "-", "-p", "colour"], "[ERROR] There is no property colour: oarproperty -l lists them."),
        (["-f", "-", "-b", 5, "-e", 2], "[ERROR] --first 5 is greater than --last 2. Write the smaller job id first."),
        (
            ["-f", "-", "--from", "2031-02-01", "--to", "2031-01-01"],
            "[ERROR] --from must be earlier than --to: exchange the dates.",
        ),
        (["-f", "-", "--chunk-size", 0], "[ERROR] --chunk-size must be at least 1."),
        (
            ["-f", "-", "--metadata-file", "-"],
            "[ERROR] The trace and the resources cannot both be in -: use another file for --metadata-file.",
        ),
    ],
)
def test_what_cannot_be_is_refused(console: Console, options: list[str], text: str) -> None:
    result = console.type(oar2trace.main, *options)
    assert (result.exit, result.out, result.err.strip()) == (1, "", text)


def test_a_device_or_a_directory_is_not_replaced(console: Console, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        result = console.type(oar2trace.main, "-f", path)
        assert (result.exit != 0, f"Cannot write {path}: it must be a regular file" in result.err) == (True, True)
    assert pipe.is_fifo()
    assert not list(tmp_path.glob("*.new"))

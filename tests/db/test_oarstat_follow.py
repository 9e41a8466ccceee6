"""oarstat --follow tells what happens to jobs, each thing once, in order, until the named jobs have ended."""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from oar.cli.oarstat_parts import follow
from oar.lib.db.database import Database
from oar.lib.history.sql_feed import Feed
from oar.lib.jobs.states import JobState
from tests.builders import move_job
from tests.db.test_oarstat import Cluster, cluster
from tests.db.test_oarstat_looking import typed

__all__ = ["cluster"]


@contextmanager
def _following(database: Database, path: Path, *words: str | int) -> Iterator["Popen[str]"]:
    conf = path / "oar.conf"
    conf.write_text(f'DB_HOSTNAME="{database.settings.host}"\n')
    environment = {"OARCONFFILE": str(conf), "PATH": os.environ["PATH"]}
    with Popen(typed("--follow", *map(str, words)), env=environment, stdout=PIPE, stderr=PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def _position(database: Database) -> str:
    with Feed(database) as feed:
        return str(feed.begin())


def _move(database: Database, job: int, *states: JobState) -> None:
    for state in states:
        move_job(database, job, state)


def _moved(text: str) -> list[str]:
    return [line[20:] for line in text.splitlines()]


def test_a_job_is_followed_to_its_end(cluster: Cluster, database: Database, tmp_path: Path) -> None:
    job, other = cluster.job(), cluster.job()
    with _following(database, tmp_path, job) as running:
        assert running.stdout
        first = running.stdout.readline()
        _move(database, other, JobState.HOLD)
        with database.begin() as tx:
            tx.events.add("SEEN", job, "by\neve", hosts=["node-1"])
        _move(database, job, JobState.HOLD, JobState.WAITING, JobState.ERROR)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, "")
    told = _moved(first + out)
    assert told[0].split() == [str(job), "Waiting"]
    states = [line for line in told if "->" in line]
    assert [line.split(maxsplit=1)[1] for line in states] == [
        "Waiting -> Hold",
        "Hold -> Waiting",
        "Waiting -> Error",
    ]
    assert [line.split(maxsplit=1)[1] for line in told if "SEEN" in line] == ["SEEN node-1: by\\neve"]
    assert all(line.startswith(f"{job} ") for line in told)


def test_everything_is_followed_until_an_interrupt(cluster: Cluster, database: Database, tmp_path: Path) -> None:
    before = _position(database)
    first = cluster.job()
    with _following(database, tmp_path, "-J", "--since", before) as running:
        assert running.stdout
        assert json.loads(running.stdout.readline())["job"] == first
        second = cluster.job()
        record = json.loads(running.stdout.readline())
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (0, "", "")
    assert (record["event"], record["job"], record["from"], record["state"]) == ("state", second, None, "Waiting")
    assert (record["user"], record["queue"], record["array"]) == ("eve", "default", second)


def test_an_array_is_followed_until_its_last_job_has_ended(
    cluster: Cluster, database: Database, tmp_path: Path
) -> None:
    """What is submitted again in the place of a job belongs to it, too."""
    first, second, copy = cluster.job(), cluster.job(), cluster.job()
    cluster.execute("UPDATE jobs SET array_id = %s WHERE job_id = %s", first, second)
    with _following(database, tmp_path, "--array", first) as running:
        assert running.stdout
        assert [running.stdout.readline().split()[2:] for _ in range(2)] == [
            [str(first), "Waiting"],
            [str(second), "Waiting"],
        ]
        _move(database, first, JobState.ERROR)
        assert running.stdout.readline().endswith("Waiting -> Error\n")
        cluster.execute("UPDATE jobs SET array_id = %s WHERE job_id = %s", first, copy)
        _move(database, second, JobState.ERROR)
        assert running.stdout.readline().split()[2] == str(second)
        _move(database, copy, JobState.ERROR)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, "")
    assert _moved(out) == [f"{copy:<10} Waiting -> Error"]
    assert cluster.oarstat("--follow", "--array", first).exit == 0


def test_what_ended_before_somebody_looked_whether_the_array_goes_on_is_told(
    cluster: Cluster, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, copy = cluster.job(), cluster.job()
    look, ends = follow._states, [first]

    def look_between_ends(*arguments: Any) -> Mapping[int, str]:
        if first not in ends:
            cluster.execute("UPDATE jobs SET array_id = %s WHERE job_id = %s", first, copy)
            _move(database, copy, JobState.ERROR)
            return look(*arguments)
        seen = look(*arguments)
        _move(database, ends.pop(), JobState.ERROR)
        return seen

    monkeypatch.setattr(follow, "_states", look_between_ends)
    told = _moved(cluster.shows("--follow", "--array", first))
    assert told[1:] == [f"{job:<10} Waiting -> Error" for job in (first, copy)]


@pytest.mark.parametrize("others", [("-u", "bob"), ("--queue", "admin")])
@pytest.mark.parametrize("named", ["--array", "-j"])
def test_jobs_of_which_nothing_is_told_are_not_awaited(cluster: Cluster, named: str, others: tuple[str, str]) -> None:
    job = cluster.job()
    assert cluster.shows("--follow", named, job, *others) == ""


def test_what_is_told_behind_a_position_is_the_rest(cluster: Cluster, database: Database) -> None:
    before = _position(database)
    job = cluster.job()
    _move(database, job, JobState.HOLD, JobState.WAITING, JobState.ERROR)
    whole = [json.loads(line) for line in cluster.shows("--follow", "-J", "--since", before, job).splitlines()]
    assert [each["state"] for each in whole if each["event"] == "state"] == ["Waiting", "Hold", "Waiting", "Error"]
    for place, each in enumerate(whole):
        rest = cluster.shows("--follow", "-J", "--since", each["position"], job).splitlines()
        assert [json.loads(line) for line in rest] == whole[place + 1 :]


@pytest.mark.parametrize("words", [("-u", "eve"), ("-u", "bob"), ("--queue", "admin"), ("-a", "JOB")])
def test_some_jobs_are_followed(cluster: Cluster, database: Database, words: tuple[str, str]) -> None:
    before = _position(database)
    eves, bobs = cluster.job(), cluster.job(user="bob", queue="admin")
    _move(database, eves, JobState.ERROR)
    _move(database, bobs, JobState.ERROR)
    asked = {"eve": eves, "bob": bobs, "admin": bobs, "JOB": eves}
    chosen = (words[0], str(eves) if words[1] == "JOB" else words[1])
    told = cluster.shows("--follow", "-J", "--since", before, *chosen, eves, bobs).splitlines()
    assert {json.loads(line)["job"] for line in told} == {asked[words[1]]}
    assert len(told) == 2


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["999"], "# Error: job 999 does not exist.\n"),
        (["--array", "999"], "# Error: job 999 does not exist.\n"),
        (["--since", "yesterday"], '# Error: "yesterday" is not a position in the history'),
        (["--since", "s99999999.e99999999"], '# Error: "s99999999.e99999999" is not a position in the history of this'),
        (["-f"], "# Error: --follow can only be combined with job"),
        (["--states", "R"], "# Error: --follow can only be combined with job"),
        (["--format", "2"], "# Error: --follow can only be combined with job"),
        (["-Y"], "# Error: --follow supports text and --json only: use one of them\n"),
        (["bob"], '# Error: "bob" is not a job id.'),
    ],
)
def test_what_cannot_be_followed_is_told(cluster: Cluster, words: list[str], error: str) -> None:
    result = cluster.oarstat("--follow", *words)
    assert (result.exit, result.out) == (1, "")
    assert result.err.startswith(error)

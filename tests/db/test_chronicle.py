"""The lives of jobs in the log and in COMPLETION_LOG: oar/modules/chronicle.py."""

import json
import logging
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.history.sql_history import History
from oar.lib.jobs import lifecycle
from oar.lib.jobs.records import NodeUsage
from oar.lib.jobs.states import JobState
from oar.lib.runtime import Runtime
from oar.modules import chronicle
from oar.modules.chronicle import Chronicle, HistoryReader, append, complete, tell
from tests.builders import add_job, add_resources, execute_sql, move_job


@pytest.fixture
def reader(database: Database) -> HistoryReader:
    """Who writes the log, and has begun."""
    made = HistoryReader("log", tell)
    made.look(database)
    return made


def told(caplog: pytest.LogCaptureFixture, reader: HistoryReader, database: Database) -> list[tuple[int, str]]:
    """Let the reader write what is new; return the lines, each with its job."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "oar.modules.chronicle"):
        while reader.look(database):
            pass
    return [(getattr(record, "job", 0), record.getMessage()) for record in caplog.records]


def test_the_log_tells_the_life_of_a_job(
    database: Database, reader: HistoryReader, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = add_job(database, JobState.FINISHING, on=add_resources(database))
    with database.begin() as tx:
        tx.jobs.update(job_id, exit_code=256, message="R=4,W=1:0:0")
        tx.job_runs.add_usage([(job_id, NodeUsage("node-1", 2, 0.0, 1 << 20))])
        lifecycle.move(tx, job_id, JobState.TERMINATED)
    lines = told(caplog, reader, database)
    assert [job for job, _ in lines] == [job_id] * 3
    assert lines[0][1] == "submitted by alice to queue default, project default: R=4,W=1:0:0"
    assert lines[1][1] == "started on node-1, node-2"
    assert lines[2][1].startswith("ended: Terminated, exit code 256 (1,0,0), ")
    assert ", EXIT_STATUS, ran " in lines[2][1]
    assert lines[2][1].endswith("Its command ended with exit status 1.")
    assert told(caplog, reader, database) == []


def test_a_job_that_never_ran_says_so(
    database: Database, reader: HistoryReader, caplog: pytest.LogCaptureFixture
) -> None:
    add_job(database, JobState.ERROR)
    assert told(caplog, reader, database)[-1][1].startswith("ended: Error, ")
    assert "never ran" in caplog.text


def test_a_job_that_is_resumed_has_not_started_again(
    database: Database, reader: HistoryReader, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = add_job(database, JobState.RESUMING, on=add_resources(database))
    move_job(database, job_id, JobState.RUNNING)
    texts = [text for _, text in told(caplog, reader, database)]
    assert [text.split()[0] for text in texts] == ["submitted", "started"]


def test_what_happened_while_the_server_was_away_is_told_later(
    database: Database, reader: HistoryReader, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = add_job(database)
    later = HistoryReader("log", tell)
    assert [job for job, _ in told(caplog, later, database)] == [job_id]
    assert told(caplog, HistoryReader("log", tell), database) == []


def test_a_refused_submission_is_told(
    database: Database, reader: HistoryReader, caplog: pytest.LogCaptureFixture
) -> None:
    with database.begin() as tx:
        tx.events.add(EventType.SUBMISSION_REFUSED, 0, "a submission of alice: no")
        tx.events.add(EventType.ADMISSION_RULE_FAILED, 0, "rule #2: NameError")
    assert told(caplog, reader, database) == [
        (0, "refused: a submission of alice: no"),
        (0, "an admission rule failed: rule #2: NameError"),
    ]


def fail_rule(reader: HistoryReader, database: Database, *traces: str) -> None:
    """Let rules fail, and the reader hear of it."""
    with database.begin() as tx:
        for trace in traces:
            tx.events.add(EventType.ADMISSION_RULE_FAILED, 0, trace)
    while reader.look(database):
        pass


def test_each_failing_rule_is_mailed_once_a_day(reader: HistoryReader, database: Database) -> None:
    mails: list[Any] = []
    database.deliver = mails.extend
    for traces in (("rule #2: NameError", "rule #2: KeyError"), ("rule #2: NameError", "rule #3: TypeError")):
        fail_rule(reader, database, *traces)
    assert [mail.subject for mail in mails] == ["An admission rule fails"] * 2
    assert "rule #2: NameError\nCorrect rule 2, or disable it: oaradmissionrules -m 2 -N. " in mails[0].text
    assert "rule #3: TypeError" in mails[1].text


def test_a_rule_that_fails_each_hour_is_mailed_again_the_next_day(reader: HistoryReader, database: Database) -> None:
    mails: list[Any] = []
    database.deliver = mails.extend
    for _ in range(26):
        fail_rule(reader, database, "rule #2: NameError")
        execute_sql(database, "UPDATE event_logs SET date = date - 3600")
    assert len(mails) == 2


def test_a_mail_that_a_crash_may_have_lost_is_sent_again(
    reader: HistoryReader, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    mails: list[Any] = []
    database.deliver = mails.extend
    with monkeypatch.context() as patch:
        patch.setattr(History, "store_position", Mock(side_effect=DatabaseUnavailable("the server is killed")))
        with pytest.raises(DatabaseUnavailable):
            fail_rule(reader, database, "rule #2: NameError")
    fail_rule(HistoryReader("log", tell), database)
    assert len(mails) == 2


def test_more_than_one_piece_is_told_in_order(
    database: Database, reader: HistoryReader, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oar.lib.history.sql_feed.PIECE", 2)
    ids = [add_job(database) for _ in range(5)]
    assert [job for job, _ in told(caplog, reader, database)] == ids


# -- COMPLETION_LOG ---------------------------------------------------------------------------------------------------


def test_an_ended_job_is_a_line_of_the_completion_log(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "completions"
    reader = HistoryReader("completions", lambda tx, news: complete(tx, news, str(path)))
    reader.look(database)
    resources = add_resources(database)
    job_id = add_job(database, JobState.TERMINATED, on=resources, types=["besteffort"], name='a "name"\n')
    add_job(database, JobState.RUNNING, on=resources)
    reader.look(database)
    (line,) = path.read_text().splitlines()
    record = json.loads(line)
    assert (record["job_id"], record["owner"], record["state"], record["name"]) == (
        job_id,
        "alice",
        "Terminated",
        'a "name"\n',
    )
    assert (record["resources"], record["nodes"]) == (resources, ["node-1", "node-2"])
    assert (record["walltime"], record["types"]) == (3600, ["besteffort"])
    assert path.stat().st_mode & 0o777 == 0o640


def test_the_completion_log_may_be_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "completions"
    append(str(path), b"1\n")
    path.rename(tmp_path / "completions.1")
    append(str(path), b"2\n")
    assert (path.read_bytes(), (tmp_path / "completions.1").read_bytes()) == (b"2\n", b"1\n")


def test_a_line_that_the_disk_does_not_take_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "completions"
    append(str(path), b"1\n")
    write = os.write
    answers = iter([3])

    def written(file: int, text: bytes) -> int:
        """Take three bytes, then none."""
        if next(answers, None) is None:
            raise OSError(28, "No space left on device")
        return write(file, text[:3])

    monkeypatch.setattr(os, "write", written)
    with pytest.raises(OSError, match="No space"):
        append(str(path), b"second\n")
    assert path.read_bytes() == b"1\n"


def test_lines_that_could_not_be_written_are_written_later(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "absent"
    path = directory / "completions"
    made = Chronicle()
    assert made.due() is None
    made.follow(Runtime(Config(completion_log=str(path), oar_run_dir=str(tmp_path)), database))
    assert made.due() == 0
    made.go_on()
    job_id = add_job(database, JobState.ERROR)
    made.go_on()
    assert "cannot write the events of jobs" in caplog.text
    assert str(path) in caplog.text
    assert (made.due() or 0) > chronicle.LOOK
    directory.mkdir()
    made.go_on()
    assert json.loads(path.read_text())["job_id"] == job_id

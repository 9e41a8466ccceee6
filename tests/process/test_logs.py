"""Lines of the log: their form, and that nothing a user writes can break it."""

import json
import logging
import logging.handlers
import os
import queue
import re
import socket
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from oar.lib import logs
from oar.lib.config.files import Config, parse
from oar.lib.logs import Journal, datagram

LOG = logging.getLogger("oar.modules.test")


def written(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_line_has_type_date_module_pid_job_and_message(tmp_path: Path) -> None:
    file = tmp_path / "oar.log"
    with logs.logging_to(Config(log_file=str(file)), "Bipbip"):
        logs.of_job(LOG, 42).info("job is %s", "ended")
        LOG.warning("no job")
    first, second = written(file)
    head, tail = first.split("|Bipbip/")
    assert re.fullmatch(r"I\|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}", head)
    assert tail == f"{os.getpid()}|42|job is ended"
    assert second.endswith("||no job")
    assert second.startswith("W|")


def test_a_line_may_be_a_json_object(tmp_path: Path) -> None:
    file = tmp_path / "oar.log"
    with logs.logging_to(Config(log_file=str(file), log_format="json"), "Sarko"):
        LOG.error('a "quoted" word', extra={"job": 7})
    line = json.loads(file.read_text())
    assert set(line) == {"level", "date", "module", "pid", "job", "message"}
    assert (line["level"], line["module"], line["job"], line["message"]) == ("error", "Sarko", 7, 'a "quoted" word')


@given(st.text())
def test_whatever_a_message_holds_it_stays_one_line_without_control_characters(text: str) -> None:
    line = logs.escaped(text)
    assert line.isprintable() or not re.search(r"[\x00-\x1f\x7f-\x9f]", line)
    assert len(line.splitlines()) <= 1


def test_a_stack_trace_stays_on_the_line_of_its_message(tmp_path: Path) -> None:
    file = tmp_path / "oar.log"
    with logs.logging_to(Config(log_file=str(file)), "Leon"):
        try:
            raise RuntimeError("first\nsecond")
        except RuntimeError:
            LOG.exception("pass failed")
    assert len(written(file)) == 1
    assert "RuntimeError: first\\nsecond" in written(file)[0]


def test_the_level_and_the_categories_choose_what_is_written(tmp_path: Path) -> None:
    file = tmp_path / "oar.log"
    planner = logging.getLogger("oar.kao.test")
    with logs.logging_to(Config(log_file=str(file), log_level=3, log_categories=("scheduler",)), "Kao"):
        planner.debug("planner")
        LOG.info("server")
        LOG.error("bad server")
    assert [line.rsplit("|", 1)[1] for line in written(file)] == ["planner", "bad server"]
    file.unlink()
    with logs.logging_to(Config(log_file=str(file), log_level=1), "Kao"):
        LOG.warning("warned")
        LOG.error("bad")
    assert [line.rsplit("|", 1)[1] for line in written(file)] == ["bad"]


def test_a_file_that_was_moved_away_is_opened_again(tmp_path: Path) -> None:
    file = tmp_path / "oar.log"
    with logs.logging_to(Config(log_file=str(file)), "Leon"):
        LOG.info("one")
        file.rename(tmp_path / "oar.log.1")
        LOG.info("two")
        file.unlink()
        LOG.info("three")
    assert written(tmp_path / "oar.log.1")[0].endswith("one")
    assert [line.rsplit("|", 1)[1] for line in written(file)] == ["three"]


def test_passwords_and_challenges_are_never_written(tmp_path: Path) -> None:
    file = tmp_path / "oar.log"
    with logs.logging_to(Config(log_file=str(file), db_base_passwd="s3cr3t!"), "Leon"):
        LOG.info("password=s3cr3t! in %s", "dsn s3cr3t!")
        LOG.info("got OAREXEC_12_0_N_123456789012345678901234567890")
    text = file.read_text()
    assert "s3cr3t" not in text
    assert "OAREXEC_12_0_N_***" in text
    assert "1234567890" not in text


def test_a_file_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    program = (
        "import logging\nfrom oar.lib import logs\nfrom oar.lib.config.files import Config\n"
        f"logs.set_up(Config(log_file={str(tmp_path / 'no' / 'oar.log')!r}), 'Leon')\n"
        "logging.getLogger('oar.x').error('told anyway')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "told anyway" in done.stderr


def test_many_processes_share_one_file_without_mixing_lines(tmp_path: Path) -> None:
    file = tmp_path / "oar.log"
    program = (
        "import logging\nfrom oar.lib import logs\nfrom oar.lib.config.files import Config\n"
        f"logs.set_up(Config(log_file={str(file)!r}), 'Many')\n"
        "for i in range(200): logging.getLogger('oar.x').info('x' * 500)\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    assert len(written(file)) == 600
    assert all(line.endswith("|" + "x" * 500) for line in written(file))


def test_a_log_that_is_closed_leaves_the_level_of_others_as_it_was(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = root.level
    with logs.logging_to(Config(log_file=str(tmp_path / "oar.log"), log_level=0), "Sarko"):
        assert root.level == logging.CRITICAL
        logs.set_up(Config(log_file=str(tmp_path / "other.log"), log_level=3), "Sarko")
        assert root.level == logging.DEBUG
    assert root.level == before


# -- the journal of systemd -------------------------------------------------------------------------------------------


def test_the_journal_gets_job_queue_and_nodes_as_fields(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(tmp_path / "journal"))
        handler = logs.JournalHandler(Journal(str(tmp_path / "journal")), "Sarko", ["s3cr3t!"])
        record = logging.LogRecord("oar.x", logging.WARNING, "", 0, "ended: s3cr3t! \n %s", ("x",), None)
        record.__dict__ |= {"job": 42, "queue": "default", "nodes": ("node-1", "node-2")}
        handler.emit(record)
        sent = journal.recv(65536)
        handler.close()
    assert sent.decode().splitlines() == [
        "MESSAGE=ended: *** \\n x",
        "PRIORITY=4",
        "SYSLOG_IDENTIFIER=oar",
        "MODULE=Sarko",
        "JOB=42",
        "QUEUE=default",
        "NODE=node-1",
        "NODE=node-2",
    ]


def test_loggers_about_jobs_and_nodes_say_so_to_the_journal() -> None:
    records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handler = logging.handlers.QueueHandler(records)
    LOG.addHandler(handler)
    try:
        logs.of_job(LOG, 7, queue="long", nodes=["node-1"]).error("a")
        logs.of_nodes(LOG, "node-2", "node-3").error("b")
        LOG.error("c")
    finally:
        LOG.removeHandler(handler)
    journal = logs.JournalHandler(Journal("/nonexistent"), "Leon")
    about = [
        [field for field in journal.fields(records.get_nowait()) if field[0] in ("JOB", "QUEUE", "NODE")] for _ in "abc"
    ]
    assert about == [
        [("JOB", "7"), ("QUEUE", "long"), ("NODE", "node-1")],
        [("NODE", "node-2"), ("NODE", "node-3")],
        [],
    ]


def test_a_field_of_several_lines_stands_behind_its_length() -> None:
    assert datagram([("A", "x\ny"), ("B", "")]) == b"A\n\x03\0\0\0\0\0\0\0x\ny\nB=\n"


def test_without_a_journal_the_line_goes_to_standard_error() -> None:
    program = (
        "import logging\nfrom oar.lib import logs\n"
        "handler = logs.JournalHandler(logs.Journal('/nonexistent/socket'), 'Leon')\n"
        "logging.getLogger().addHandler(handler)\nlogging.error('told anyway')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "told anyway\ncannot write to the journal: No such file or directory\n"


def test_log_file_names_the_journal() -> None:
    assert parse('LOG_FILE=":journal:"').config.log_file == ":journal:"
    with logs.logging_to(Config(log_file=":journal:"), "Leon"):
        assert [
            type(handler) for handler in logging.getLogger().handlers if isinstance(handler, logs.ServerHandler)
        ] == [logs.JournalHandler]

"""The service is killed while it answers an agent: no job is lost, none runs twice, results are whole or not there."""

import http.client
import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from oar.lib.access import tokens
from oar.lib.access.records import User
from oar.lib.db.database import Database
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.states import JobState, Phase
from oar.modules.runner.actions.launch import launch_job
from tests.api.test_program import Program, Start, start
from tests.builders import state_of
from tests.desktop import HOST, Desk, ended

pytestmark = pytest.mark.slow

__all__ = ["start"]

FORM = "multipart/form-data; boundary=b"
#: A question of another transaction that waits for a lock.
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def waits(database: Database) -> bool:
    """Whether somebody waits for a lock; each look has a transaction of its own, for one knows all connections."""
    with database.snapshot() as other:
        return bool(other.value(WAITING))


class Service:
    """The service, which is killed and started again; an agent asks it, and perhaps does not hear the answer."""

    def __init__(self, start: Start, desk: Desk, place: Path) -> None:
        self.desk, self._start, self._path = desk, start, place / "api.sock"
        self.results = Path(desk.config.stageout_dir)
        with desk.database.begin() as tx:
            _, self._token = tokens.create(tx, User("root", 0, administers=True), scope=f"agent:{HOST}")
        self.program = self._begin()

    def _begin(self) -> Program:
        self._path.with_name("notify").unlink(missing_ok=True)
        program = self._start(f"unix:{self._path}", f'STAGEOUT_DIR="{self.results}"\nAPI_RATE_CHANGE="0"\n')
        assert program.told.recv(100) == b"READY=1"
        return program

    def die(self) -> None:
        """Be killed, and started again."""
        self.program.process.kill()
        self.program.process.wait()
        self.program = self._begin()

    def until(self, is_so: Callable[[], object]) -> None:
        """Wait while it lives."""
        while not is_so():
            assert self.program.process.poll() is None

    def say(self, body: bytes, kind: str, length: int | None = None) -> socket.socket:
        """Send a question, or its beginning; return the connection, on which the answer is to be read."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(60)
        connection.connect(str(self._path))
        lines = ["POST /oar-cgi HTTP/1.1", "Host: oar", f"Authorization: Bearer {self._token}"]
        lines += [f"Content-Type: {kind}", f"Content-Length: {length or len(body)}", "", ""]
        connection.sendall("\r\n".join(lines).encode() + body)
        return connection

    def pull(self, **jobs: object) -> socket.socket:
        """Ask for jobs, and tell some, by ``job_`` and their number."""
        told = {name.removeprefix("job_"): job for name, job in jobs.items()}
        question = {"request": "PULL", "hostname": HOST, "agent": "a", "jobs": told}
        return self.say(json.dumps(question).encode(), "application/json")


def heard(connection: socket.socket) -> dict[str, object]:
    """Read an answer, which is a good one."""
    with connection:
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 200
        told: dict[str, object] = json.loads(answer.read())
    return told


@pytest.fixture
def service(start: Start, database: Database, tmp_path: Path) -> Service:
    return Service(start, Desk(database, stageout_dir=str(tmp_path / "out")), tmp_path)


def launched(service: Service) -> int:
    """A job that waits for its agent."""
    job_id = service.desk.job()
    launch_job(service.desk.context, job_id)
    return job_id


def starts(connection: socket.socket) -> list[str]:
    """The jobs that an answer lets start."""
    told = heard(connection)["launch"]
    assert isinstance(told, dict)
    return list(told)


def ends_once(service: Service, job_id: int) -> None:
    """Let the agent run a job that it has heard of: it is told no more, and ends as the agent says."""
    assert starts(service.pull(**{f"job_{job_id}": {"state": "running"}})) == []
    assert starts(service.pull(**{f"job_{job_id}": {"state": "ended", "status": 0}})) == []
    assert starts(service.pull()) == []
    assert service.desk.end(job_id) == Cause(EndCode.SUCCESS)
    assert state_of(service.desk.database, job_id) is JobState.TERMINATED


# -- PULL -------------------------------------------------------------------------------------------------------------


def test_a_start_that_was_not_stored_is_told_by_the_next_service(service: Service) -> None:
    job_id = launched(service)
    with service.desk.database.begin() as tx:
        tx.execute("SELECT 1 FROM jobs WHERE job_id = %s FOR UPDATE", (job_id,))
        asked = service.pull()
        service.until(lambda: waits(service.desk.database))
        service.program.process.kill()
        service.program.process.wait()
    asked.close()
    assert state_of(service.desk.database, job_id) is JobState.LAUNCHING
    service.die()
    assert starts(service.pull()) == [str(job_id)]
    ends_once(service, job_id)


def test_a_start_whose_answer_was_lost_is_told_again_to_the_same_agent(service: Service) -> None:
    job_id = launched(service)
    with service.pull():
        service.until(lambda: service.desk.phase(job_id) is Phase.GO)
        service.die()
    assert state_of(service.desk.database, job_id) is JobState.RUNNING
    assert starts(service.pull()) == [str(job_id)]
    ends_once(service, job_id)


def test_an_end_that_was_stored_and_not_answered_is_told_again_and_changes_nothing(service: Service) -> None:
    job_id = launched(service)
    heard(service.pull())
    over = {f"job_{job_id}": {"state": "ended", "status": 3 << 8}}
    with service.pull(**over):
        service.until(lambda: service.desk.code(job_id) is not None)
        service.die()
    assert heard(service.pull(**over)) == {"launch": {}, "kill": [], "next": 30}
    assert service.desk.end(job_id) == Cause(EndCode.EXIT_STATUS, {"status": 3})
    assert heard(service.pull(**over))["launch"] == {}


# -- STAGEOUT ---------------------------------------------------------------------------------------------------------


def results_of(job_id: int, data: bytes) -> bytes:
    """The form with which an agent sends results."""
    fields = {"request": "STAGEOUT", "hostname": HOST, "job_id": str(job_id)}
    head = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()
    )
    head += '--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
    return head.encode() + data + b"\r\n--b--\r\n"


def test_results_of_which_a_half_has_come_are_none_and_are_sent_again(service: Service) -> None:
    job_id = launched(service)
    heard(service.pull())
    form = results_of(job_id, b"x" * 3_000_000)
    with service.say(form[:2_000_000], FORM, len(form)):
        service.until(lambda: any(path.stat().st_size for path in service.results.glob(".*.part")))
        service.die()
    assert not list(service.results.glob("*.tgz"))
    assert heard(service.say(form, FORM)) == {"status": "created"}
    assert (service.results / f"{job_id}.tgz").read_bytes() == b"x" * 3_000_000
    service.desk.pull({job_id: ended()}, agent="a")
    assert service.desk.end(job_id).code is EndCode.SUCCESS


def test_results_that_are_kept_and_not_answered_are_sent_again(service: Service) -> None:
    job_id = launched(service)
    heard(service.pull())
    form = results_of(job_id, b"x" * 1000)
    with service.say(form, FORM):
        service.until((service.results / f"{job_id}.tgz").exists)
        service.die()
    assert heard(service.say(form, FORM)) == {"status": "created"}
    assert [path.name for path in service.results.iterdir()] == [f"{job_id}.tgz"]

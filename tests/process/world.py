"""A node, a database and a line port: the world in which the actions of the bipbips act."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from oar.lib.bus.frames import EndReport, decode_tag
from oar.lib.bus.messages import Effect
from oar.lib.config import files as configuration
from oar.lib.db.database import Database
from oar.lib.jobs.ends import Cause
from oar.lib.jobs.records import Job, JobRun
from oar.lib.jobs.states import JobState, KillState, Phase
from oar.lib.remote.transports import CannotReach, LocalTransport, SessionChannel
from oar.lib.runtime import Runtime
from oar.modules import node_change_state
from oar.modules.runner.actions import finish, probe, signals
from oar.modules.runner.actions.context import ActionContext
from oar.modules.runner.actions.launch import launch_job
from oar.modules.runner.actions.shared_steps import SharedSteps
from tests.builders import add_job, add_resources, for_no_reason
from tests.process.node_box import NODE, NodeBox
from tests.process.this_machine import wait_until

REPORT_SECONDS = 120


class Port:
    """The server's line port: takes the report of one job at a time."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(REPORT_SECONDS)
        self.number: int = self._listener.getsockname()[1]

    def report(self, answer: str = "OK") -> EndReport:
        connection, _ = self._listener.accept()
        with connection, connection.makefile("rw") as stream:
            tag = decode_tag(stream.readline().rstrip("\n"))
            stream.write(answer + "\n")
            stream.flush()
        assert isinstance(tag, EndReport)
        return tag

    def close(self) -> None:
        self._listener.close()


@dataclass
class World:
    """A node, a database, and the actions between them."""

    box: NodeBox
    database: Database
    context: ActionContext
    port: Port
    resources: list[int]
    told: list[Effect] = field(default_factory=list)
    interrupted: set[int] = field(default_factory=set)

    def job(self, command: str, state: JobState = JobState.TO_LAUNCH, **columns: object) -> int:
        return add_job(
            self.database,
            state,
            on=self.resources[:1],
            command=command,
            launching_directory=str(self.box.home("alice")),
            **columns,  # type: ignore[arg-type]
        )

    def row(self, job_id: int) -> Job:
        with self.database.begin() as tx:
            return tx.jobs.get(job_id)

    def launched(self, command: str, **columns: object) -> int:
        """Launch a job with this command."""
        job_id = self.job(command, **columns)  # type: ignore[arg-type]
        launch_job(self.context, job_id)
        return job_id

    def run(self, job_id: int) -> JobRun:
        with self.database.begin() as tx:
            run = tx.job_runs.find(job_id)
        assert run is not None
        return run

    def phase(self, job_id: int) -> Phase | None:
        with self.database.begin() as tx:
            run = tx.job_runs.find(job_id)
        return run.phase if run else None

    def events(self, job_id: int) -> list[str]:
        with self.database.begin() as tx:
            return [event.type for event in tx.events.of_jobs([job_id]).get(job_id, [])]

    def cause(self, job_id: int) -> Cause:
        """Let the job get its final state; why it ended."""
        node_change_state.run(Runtime(self.context.config, self.database))
        with self.database.begin() as tx:
            return tx.job_runs.end_causes([job_id])[job_id]

    def finish(self, job_id: int) -> None:
        """Take the end report of a job, and do the rest of its end."""
        self.take_report(job_id)
        assert finish.finish(self.context, job_id) is None

    def kill_oarexec(self, job_id: int, *, waits: bool = False) -> None:
        pid = (self.box.runtime / f"pid_of_oarexec_for_jobId_{job_id}").read_text().split()[0]
        until_gone = f"; while kill -0 {pid} 2>/dev/null; do sleep 0.1; done" if waits else ""
        self.box.sh(f"kill -9 {pid}{until_gone}")

    def probe_until_reported(self, job_id: int) -> None:
        """Probe the node until it tells the end of a job."""

        def is_reported() -> bool:
            probe.probe(self.context, NODE)
            return self.phase(job_id) is Phase.REPORTED

        wait_until(is_reported)

    def take_report(self, job_id: int) -> None:
        """Do what the Runner does with an end report that comes at once."""
        report = self.port.report()
        assert report.job_id == job_id
        with self.database.begin() as tx:
            status = None if report.status == "N" else int(report.status)
            assert tx.job_runs.report(job_id, report.code, status)
            finish.note_finishing(tx, job_id, report.code, status)

    def ask_kill(self, job_id: int) -> None:
        with self.database.begin() as tx:
            tx.job_requests.request_kill(for_no_reason(job_id))
            tx.job_requests.move_kill([job_id], KillState.TIMER_ARMED, [KillState.LEON])


def new_world(box: NodeBox, database: Database) -> Iterator[World]:
    port = Port()
    text = f"""
        SERVER_HOSTNAME="0.0.0.0"
        SERVER_PORT="{port.number}"
        OAR_RUNTIME_DIRECTORY="{box.runtime}"
        CPUSET_PATH="{box.cpuset_path}"
        JOB_RESOURCE_MANAGER_PROPERTY_DB_FIELD="cpuset"
        JOB_KILL_GRACE="0"
        JRM_CLEAR_DIRS=""
        OAR_SSH_CONNECTION_TIMEOUT="20"
    """
    parsed = configuration.parse(text)
    assert not parsed.errors
    resources = add_resources(database, nodes=1, cores=2, network_address=NODE)
    interrupted: set[int] = set()

    def watch(name: str, body: Callable[[], None]) -> None:
        threading.Thread(target=body, name=name, daemon=True).start()

    context = ActionContext(parsed.config, database, box.remote, interrupted.__contains__, SharedSteps(database), watch)
    made = World(box, database, context, port, resources, interrupted=interrupted)
    database.deliver = made.told.extend
    yield made
    context.steps.settle()  # what would be done soon would be done while the next test runs
    port.close()


def end(world: World, job_id: int) -> None:
    """Kill a job and let it end."""
    world.ask_kill(job_id)
    signals.kill(world.context, job_id)
    world.finish(job_id)


class Nowhere(LocalTransport):
    """A way to nodes of which none can be reached while it is shut."""

    is_shut = True

    def open(self, node: str, command: str, seconds: float) -> SessionChannel:
        if self.is_shut:
            raise CannotReach("no route to host")
        return super().open(node, command, seconds)


def slowed(world: World, seconds: int) -> ActionContext:
    """A context whose launches wait for their prologue."""
    prologue = world.box.base / "prologue"
    prologue.write_text(f"#!/bin/sh\nsleep {seconds}\n")
    prologue.chmod(0o755)
    os.chmod(world.box.base, 0o755)
    parsed = configuration.parse(
        f'PROLOGUE_EXEC_FILE="{prologue}"\nPROLOGUE_EPILOGUE_TIMEOUT="50"\nCPUSET_PATH="{world.box.cpuset_path}"\n'
        f'OAR_RUNTIME_DIRECTORY="{world.box.runtime}"\nJOB_RESOURCE_MANAGER_PROPERTY_DB_FIELD="cpuset"\n'
        f'SERVER_HOSTNAME="0.0.0.0"\nSERVER_PORT="{world.port.number}"\n'
    )
    return replace(world.context, config=parsed.config)

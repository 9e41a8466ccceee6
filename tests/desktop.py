"""A server with two desktop computers, for tests: agents are asked for nothing, they ask."""

from collections.abc import Mapping
from typing import Any

from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.desktop.pull import pull
from oar.lib.desktop.records import AgentCall, AgentJob, AgentJobState, PullAnswer
from oar.lib.jobs import control
from oar.lib.jobs.ends import Cause
from oar.lib.jobs.states import JobState, Phase
from oar.lib.nodes.states import ResourceState
from oar.lib.runtime import Runtime
from oar.modules import leon, node_change_state
from oar.modules.runner.actions import finish, signals
from oar.modules.runner.actions.context import ActionContext
from oar.modules.runner.actions.launch import launch_job
from oar.modules.runner.actions.shared_steps import SharedSteps
from tests.builders import add_job, add_resources, for_no_reason

HOST, OTHER = "desk-1", "desk-2"
EXPIRY = 300
STAGING, RUNNING = AgentJob(AgentJobState.STAGING), AgentJob(AgentJobState.RUNNING)


def ended(status: int | None = 0, reason: str = "") -> AgentJob:
    return AgentJob(AgentJobState.ENDED, status, reason)


class Desk:
    """A server with two desktop computers; nothing here reaches a node, and whoever tries fails."""

    def __init__(self, database: Database, **keys: object) -> None:
        self.database = database
        self.config = Config(
            desktop_computing_expiry=EXPIRY, pingchecker_sentinelle_script_command="/bin/false", **keys
        )
        self.resources = [
            add_resources(database, 1, 1, network_address=host, desktop_computing="YES")[0] for host in (HOST, OTHER)
        ]
        nobody: Any = None  # there is no way to a node
        together = SharedSteps(database)
        self.context = ActionContext(self.config, database, nobody, lambda _: False, together, lambda *_: None)

    def job(self, state: JobState = JobState.TO_LAUNCH, host: int = 0, **columns: Any) -> int:
        types = ("desktop_computing", *columns.pop("types", ()))
        return add_job(self.database, state, on=self.resources[host : host + 1], types=types, **columns)

    def pull(
        self, jobs: Mapping[int, AgentJob] | None = None, host: str = HOST, agent: str = "", **flags: bool
    ) -> PullAnswer:
        may_create = flags.pop("may_create", False)
        with self.database.begin() as tx:
            return pull(tx, AgentCall(host, jobs or {}, agent=agent, **flags), self.config, may_create=may_create)

    def running(self, **columns: Any) -> int:
        """Bring a job to its agent."""
        job_id = self.job(**columns)
        launch_job(self.context, job_id)
        assert list(self.pull().launch) == [job_id]
        self.pull({job_id: RUNNING})
        return job_id

    def end(self, job_id: int) -> Cause:
        """Do what is left of the end of a job; why it ended."""
        finish.finish(self.context, job_id)
        return self.settle(job_id)

    def settle(self, job_id: int) -> Cause:
        """Let NodeChangeState do its work; why a job ended."""
        self.node_change_state()
        with self.database.begin() as tx:
            return tx.job_runs.end_causes([job_id])[job_id]

    def node_change_state(self) -> None:
        node_change_state.run(Runtime(self.config, self.database))

    def leon(self) -> None:
        leon.run(Runtime(self.config, self.database))

    def kill(self, job_id: int) -> None:
        with self.database.begin() as tx:
            control.ask_end(tx, for_no_reason(job_id))
        self.leon()
        signals.kill(self.context, job_id)

    def phase(self, job_id: int) -> Phase | None:
        with self.database.begin() as tx:
            run = tx.job_runs.find(job_id)
        return run.phase if run else None

    def code(self, job_id: int) -> int | None:
        with self.database.begin() as tx:
            run = tx.job_runs.find(job_id)
        return run.oarexec_code if run and run.report_date else None

    def state(self, host: int = 0) -> tuple[ResourceState, bool]:
        with self.database.begin() as tx:
            (resource,) = tx.resources.select([self.resources[host]])
        return resource.state, resource.finaud_decision

    def execute(self, sql: str, *values: object) -> None:
        with self.database.begin() as tx:
            tx.execute(sql, values)

    def events(self, job_id: int) -> list[str]:
        with self.database.begin() as tx:
            return [event.type for event in tx.events.of_jobs([job_id]).get(job_id, [])]

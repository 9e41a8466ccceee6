"""A site with projects and budgets: who used what, passes, and requests for reservations."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from oar.cli import qrsub
from oar.cli.common.command import Command, CommandResult
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.access.records import User
from oar.lib.accounts import budgets as project_budgets
from oar.lib.accounts import project_changes
from oar.lib.accounts.budgets import BudgetUse
from oar.lib.accounts.records import Budget, Member, Project
from oar.lib.accounts.states import MemberRole, OnExhaustion
from oar.lib.bus.messages import Mail, UserMail
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs import accounting
from oar.lib.jobs.states import BudgetCount, JobState, ProjectMode, Reservation
from oar.lib.runtime import Runtime
from tests.builders import add_job, add_resources, execute_sql
from tests.frontend import LoginNode, add_rules

ALICE, BOB, ROOT = User("alice", 0), User("bob", 0), User("root", 0)
DAY = 86400
NOW = int(time.time())
START, END = NOW // DAY * DAY - 10 * DAY, NOW // DAY * DAY + 20 * DAY


CONFIG = Config().replace(projects=ProjectMode.KNOWN)
REQUESTS = CONFIG.replace(budget_counts=BudgetCount.REQUESTS)


def add_physics(database: Database) -> None:
    """Add the projects physics, which bob manages, physics.cms below it, of alice, and biology."""
    with database.begin() as tx:
        for name, parent in (("physics", None), ("physics.cms", "physics"), ("biology", None)):
            tx.projects.create(Project(name, parent=parent))
        tx.projects.add(Member("physics", "bob", MemberRole.MANAGER))
        tx.projects.add(Member("physics.cms", "alice"))


def set_budget(database: Database, project: str, hours: float, user: User = ROOT, *, mode: str = "refuse") -> None:
    with database.begin() as tx:
        project_changes.set_budget(tx, Config(), user, Budget(project, START, END, hours, OnExhaustion(mode)))


class Site:
    """Resources, and jobs that used them at given dates."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.resources = add_resources(database, nodes=2, cores=2)
        self.config = CONFIG

    def job(
        self, start: int, stop: int = 0, *, resources: int = 2, walltime: int = 7200, project: str = "physics"
    ) -> int:
        """Add a job that held resources between two dates; ``stop`` 0: it runs."""
        state = JobState.TERMINATED if stop else JobState.RUNNING
        job_id = add_job(
            self.database, state, on=self.resources[:resources], walltime=walltime, user="alice", project=project
        )
        execute_sql(
            self.database, "UPDATE jobs SET start_time = %s, stop_time = %s WHERE job_id = %s", start, stop, job_id
        )
        return job_id

    def end(self, job_id: int, stop: int) -> None:
        execute_sql(
            self.database, "UPDATE jobs SET state = 'Terminated', stop_time = %s WHERE job_id = %s", stop, job_id
        )

    def account(self) -> None:
        list(accounting.count(self.database, accounting.accounting_rules(self.config)))

    def uses(self, now: int = NOW) -> dict[str, BudgetUse]:
        """Return the use of the budgets in force at a date."""
        with self.database.begin() as tx:
            tx.now = now
            current = project_budgets.in_force(tx.budgets.all(), now)
            return {use.budget.project: use for use in project_budgets.read_uses(tx, self.config, current)}

    def used(self, project: str = "physics", now: int = NOW) -> float:
        return self.uses(now)[project].used


def login_without_hours(physics: Database) -> LoginNode:
    """Return a login node of a site on which the project physics has used up its budget of one hour."""
    site = Site(physics)
    add_rules(physics)
    site.job(NOW - 7200, NOW - 3600, resources=1)
    site.account()
    execute_sql(physics, "DELETE FROM jobs")
    made = LoginNode(physics)
    made.config = CONFIG.replace(reservation_open=True)
    return made


class Passes:
    """A scheduler, and the mails that its passes send."""

    def __init__(self, login: LoginNode) -> None:
        self.login = login
        self.scheduler = MetaScheduler(Runtime(login.config, login.database))

    def run(self) -> dict[int, str]:
        """Run a pass; return the codes of the reasons of waiting jobs."""
        self.scheduler.round()
        with self.login.database.snapshot() as tx:
            return {job_id: str(reason.code) for job_id, reason in tx.job_waits.stored_reasons().items()}

    def mails(self) -> list[UserMail | Mail]:
        """Return the mails in the outbox, the oldest first."""
        with self.login.database.snapshot() as tx:
            messages = [message.content for message in tx.unsent.read(tx.unsent.ids())]
        return [message for message in messages if isinstance(message, UserMail | Mail)]


class Desk:
    """Asks for reservations of two resources, while passes decide."""

    def __init__(self, login: LoginNode, config: Config) -> None:
        self.login = login
        login.config = config
        self.scheduler = MetaScheduler(Runtime(config, login.database))

    def ask(self, command: Command, *words: object) -> CommandResult:
        has_ended = threading.Event()

        def decide() -> None:
            while not has_ended.wait(0.1):
                self.scheduler.round()

        with ThreadPoolExecutor(1) as pool:
            deciding = pool.submit(decide)
            try:
                return self.login.type(command, *words)
            finally:
                has_ended.set()
                deciding.result()

    def reserve(self, start: int, hours: int = 2) -> CommandResult:
        text = time.strftime("%Y%m%d%H%M", time.localtime(start))
        return self.ask(qrsub.main, "-project", "physics", "-a", text, "-d", f"{hours}:0:0", "-l", "/resource_id=2")

    def add_reservation_job(self, start: int) -> None:
        """Add an accepted reservation job of two resources for two hours."""
        kind, message = Reservation.SCHEDULED, "R=2,W=2:0:0,J=R"
        add_job(
            self.login.database,
            walltime=7200,
            project="physics",
            reservation=kind,
            start_time=start,
            message=message,
        )

    def reserve_job(self, start: int) -> CommandResult:
        """Ask for a reservation job that is refused; oarsub would wait for an answer of the server."""
        text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(start))
        return self.login.oarsub("-r", text, "--project", "physics", "-l", "/resource_id=2,walltime=2", "x")

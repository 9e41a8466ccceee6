"""A machine on which users type commands, for tests of what these do to the database."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oar.cli import oarsub
from oar.cli.common.command import Command, CommandResult, invoke
from oar.lib.access.records import User
from oar.lib.bus.messages import Effect
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.records import Job
from oar.lib.runtime import Runtime
from oar.lib.submission import admission_rules

RULES = Path(__file__).parent.parent / "setup" / "database" / "admission_rules"
ALICE = User("alice", 0)  #: with the rights of whoever runs the tests: her files are theirs


@dataclass
class Frontend:
    """A site with its configuration; what its server would be told is kept."""

    database: Database
    config: Config = field(default_factory=Config)
    told: list[Effect] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.database.deliver = self.told.extend

    def type(
        self, command: Command, *words: object, user: User = ALICE, environment: dict[str, str] | None = None
    ) -> CommandResult:
        """Run a command as a user."""
        runtime = Runtime(self.config, self.database)
        return invoke(command, [str(word) for word in words], runtime=runtime, user=user, environment=environment)

    def jobs(self) -> list[Job]:
        """Return all jobs, by id."""
        with self.database.snapshot() as tx:
            return tx.jobs.select(tx.column("SELECT job_id FROM jobs"))

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        with self.database.snapshot() as tx:
            number: int = tx.value(f"SELECT count(*) FROM {table}")
        return number

    def ask(self, question: Callable[..., object], *arguments: object) -> object:
        """Ask something in a transaction."""
        with self.database.begin() as tx:
            return question(tx, *arguments)


class LoginNode(Frontend):
    """A frontend on which oarsub is typed."""

    def oarsub(self, *words: object, user: User = ALICE, environment: dict[str, str] | None = None) -> CommandResult:
        """Type oarsub."""
        return self.type(oarsub.main, *words, user=user, environment=environment)

    def submit(self, *words: object, environment: dict[str, str] | None = None) -> Job:
        """Submit one job; return it."""
        result = self.oarsub(*words, environment=environment)
        assert result.exit == 0, result.err
        return self.jobs()[-1]

    def is_empty(self) -> bool:
        """Whether no row at all is about a job; a refusal is about none."""
        tables = "jobs job_types job_dependencies job_state_logs moldable_job_descriptions job_resource_groups"
        events = "event_logs WHERE type NOT IN ('SUBMISSION_REFUSED', 'SUBMISSION_INVALID', 'ADMISSION_RULE_FAILED')"
        return not any(map(self.count, [*tables.split(), "job_resource_descriptions", "challenges", events]))


def add_rules(database: Database, *rules: str, defaults: bool = True) -> None:
    """Install the default admission rules, and after them others."""
    texts: Sequence[tuple[int, bool, str]] = (
        [(rule.priority, rule.enabled, rule.text) for rule in admission_rules.read_rules(str(RULES))]
        if defaults
        else []
    )
    with database.begin() as tx:
        for priority, enabled, text in [*texts, *((50, True, rule) for rule in rules)]:
            tx.admission_rules.insert(text, priority=priority, enabled=enabled, author="oar")

"""Where administrators type, for tests of what their commands print and do."""

from oar.cli import oarnodesetting
from oar.cli.common.command import Command, CommandResult, invoke
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.nodes.records import PropertyValue
from oar.lib.runtime import Runtime

ROOT = User("root", 0)
EVE = User("eve", 1002)


class Console:
    """Where an administrator types."""

    def __init__(self, database: Database, config: Config) -> None:
        self.database = database
        self.config = config

    def type(self, command: Command, *arguments: object, user: User = ROOT) -> CommandResult:
        """Run a command."""
        words = [str(argument) for argument in arguments]
        return invoke(command, words, runtime=Runtime(self.config, self.database), user=user)

    def nodesetting(self, *arguments: object, user: User = ROOT) -> CommandResult:
        """Run oarnodesetting."""
        return self.type(oarnodesetting.main, *arguments, user=user)

    def ids(self) -> list[int]:
        """Return the ids of all resources."""
        with self.database.begin() as tx:
            return [resource.id for resource in tx.resources.all()]

    def values(self, name: str) -> list[PropertyValue]:
        """Return a property of all resources, by id."""
        with self.database.begin() as tx:
            return [resource.properties[name] for resource in tx.resources.all()]

    def history(self, attribute: str) -> list[tuple[str, bool]]:
        """Return the logged values of a property, and whether each is the present one."""
        with self.database.begin() as tx:
            rows = tx.rows(
                "SELECT value, date_stop FROM resource_logs WHERE attribute = %s ORDER BY resource_log_id", (attribute,)
            )
        return [(row[0], row[1] == 0) for row in rows]

    def columns(self) -> dict[str, str]:
        """Return the columns of resources."""
        with self.database.begin() as tx:
            return tx.resources.columns()

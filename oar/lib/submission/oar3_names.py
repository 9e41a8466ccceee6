"""Names that admission rules written for OAR 3 expect: SQLAlchemy sessions, and models of the tables.

Importing SQLAlchemy takes longer than all other work of a command.  So each name is created when a rule first uses it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

#: Models: table, and the attributes that are not named as their column.
MODELS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "Accounting": ("accounting", {"user": "accounting_user", "project": "accounting_project"}),
    "AssignedResource": ("assigned_resources", {"moldable_id": "moldable_job_id", "index": "assigned_resource_index"}),
    "EventLog": ("event_logs", {"id": "event_id"}),
    "FragJob": ("frag_jobs", {"job_id": "frag_id_job", "date": "frag_date", "state": "frag_state"}),
    "GanttJobsPrediction": ("gantt_jobs_predictions", {"moldable_id": "moldable_job_id"}),
    "Job": (
        "jobs",
        {
            "id": "job_id",
            "name": "job_name",
            "type": "job_type",
            "user": "job_user",
            "group": "job_group",
            "env": "job_env",
        },
    ),
    "JobDependencie": ("job_dependencies", {"index": "job_dependency_index"}),
    "JobResourceDescription": (
        "job_resource_descriptions",
        {
            "group_id": "res_job_group_id",
            "resource_type": "res_job_resource_type",
            "value": "res_job_value",
            "order": "res_job_order",
            "index": "res_job_index",
        },
    ),
    "JobResourceGroup": (
        "job_resource_groups",
        {
            "id": "res_group_id",
            "moldable_id": "res_group_moldable_id",
            "property": "res_group_property",
            "index": "res_group_index",
        },
    ),
    "JobStateLog": ("job_state_logs", {"id": "job_state_log_id"}),
    "JobType": ("job_types", {"id": "job_type_id"}),
    "MoldableJobDescription": (
        "moldable_job_descriptions",
        {"id": "moldable_id", "job_id": "moldable_job_id", "walltime": "moldable_walltime", "index": "moldable_index"},
    ),
    "Queue": ("queues", {"name": "queue_name"}),
    "Resource": ("resources", {"id": "resource_id"}),
    "WalltimeChange": ("walltime_change", {}),
}

_FUNCTIONS = ("select", "or_", "and_", "not_", "text", "func")


@contextmanager
def makers(tx: "Transaction", database: "Database") -> Iterator[dict[str, Callable[[], Any]]]:
    """Yield the function that creates each name; sessions that were opened are closed at the end of the block.

    ``session`` uses the transaction ``tx``, ``session_ro`` a read-only transaction.
    """
    with ExitStack() as opened:
        orm = _Orm(tx, database, opened)
        yield _makers(orm)


def _makers(orm: "_Orm") -> dict[str, Callable[[], Any]]:
    return {
        "session": orm.session,
        "session_ro": orm.session_ro,
        **{name: partial(orm.model, name) for name in MODELS},
        **{name: partial(_function, name) for name in _FUNCTIONS},
    }


class _Orm:
    """SQLAlchemy on connections whose transactions are managed elsewhere.

    The connections are in autocommit mode and OAR sends its own BEGIN, so that a commit of a session has no effect.
    """

    def __init__(self, tx: "Transaction", database: "Database", opened: ExitStack) -> None:
        self._tx = tx
        self._database = database
        self._opened = opened

    def session(self) -> "Session":
        """Return a session in the transaction of the submission."""
        from sqlalchemy.orm import Session

        return self._opened.enter_context(Session(_engine(self._tx)))

    def session_ro(self) -> "Session":
        """Return a session of the read-only login."""
        from sqlalchemy.orm import Session

        return self._opened.enter_context(Session(_engine(self._opened.enter_context(self._database.readonly()))))

    def model(self, name: str) -> Any:
        """Return the model class of a table, with the current columns of the table."""
        from sqlalchemy.orm import registry

        table_name, renamed = MODELS[name]
        table = self._tables[table_name]
        attribute_of = {column: attribute for attribute, column in renamed.items()}
        attributes = {attribute_of.get(column.name, column.name): column for column in table.columns}
        keys = list(table.primary_key.columns) or list(table.columns)
        model = type(name, (), {"__doc__": f"A row of {table_name}."})
        registry().map_imperatively(model, table, properties=attributes, primary_key=keys)
        return model

    @cached_property
    def _tables(self) -> Mapping[str, Any]:
        from sqlalchemy import MetaData

        metadata = MetaData()
        metadata.reflect(_engine(self._tx), only=[table for table, _ in MODELS.values()])
        return metadata.tables


def _engine(tx: "Transaction") -> "Engine":
    from sqlalchemy import create_engine
    from sqlalchemy.pool import StaticPool

    return create_engine("postgresql+psycopg2://", creator=lambda: tx.connection, poolclass=StaticPool)


def _function(name: str) -> Any:
    import sqlalchemy

    return getattr(sqlalchemy, name)

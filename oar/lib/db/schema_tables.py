"""How a table is declared: kinds of columns, and the SQL that creates a table."""

from collections.abc import Iterable, Iterator, Mapping

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, MetaData, String, Table, Text, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable, SchemaItem

from oar.lib.jobs import states

metadata = MetaData()

#: For SQL text that is not sent through SQLAlchemy: "%" stays as it is.
DIALECT = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]

#: Storage options of tables whose rows change continuously.
VACUUMED_EARLY = {"autovacuum_vacuum_scale_factor": 0.02, "autovacuum_analyze_scale_factor": 0.02}
UPDATED_IN_PLACE = {"fillfactor": 80}


def table(name: str, comment: str, *parts: SchemaItem, storage: Mapping[str, float] | None = None) -> None:
    """Declare a table. The CHECK of an enumeration is named after its table and column."""
    declared = Table(name, metadata, *parts, comment=comment, info={"storage": storage or {}})
    for column in declared.columns:
        values = column.info.get("values")
        if values:
            listed = ", ".join(f"'{value}'" for value in values)
            declared.append_constraint(
                CheckConstraint(f"{column.name} IN ({listed})", name=f"{name}_{column.name}_check")
            )


def creation(table: Table) -> Iterator[str]:
    """Yield the statements that create a table and its indexes."""
    options = ", ".join(f"{option} = {value}" for option, value in table.info["storage"].items())
    statement = str(CreateTable(table).compile(dialect=DIALECT)).strip()
    yield f"{statement} WITH ({options})" if options else statement
    for index in sorted(table.indexes, key=lambda index: str(index.name)):
        yield str(CreateIndex(index).compile(dialect=DIALECT))


def sequence_number(name: str) -> Column[int]:
    """Return a column for a number from its own sequence."""
    return Column(name, BigInteger, primary_key=True)


def key(name: str) -> Column[int]:
    """Return a column for a number that is (part of) the primary key and comes from another table."""
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


def resource_key() -> Column[int]:
    return Column("resource_id", Integer, primary_key=True, autoincrement=False)


def number(name: str, default: int = 0) -> Column[int]:
    """Return a column for a date, a duration, an id or an amount."""
    return Column(name, BigInteger, nullable=False, server_default=text(str(default)))


def integer(name: str, default: int = 0) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=text(str(default)))


def string(name: str, length: int, default: str = "") -> Column[str]:
    return Column(name, String(length), nullable=False, server_default=default)


def long_text(name: str, default: str = "") -> Column[str]:
    return Column(name, Text, nullable=False, server_default=default)


def one_of(name: str, length: int, default: str, values: Iterable[str]) -> Column[str]:
    """Return a column for an enumeration."""
    return Column(name, String(length), nullable=False, server_default=default, info={"values": list(values)})


def flag(name: str, default: str = "NO") -> Column[str]:
    return one_of(name, 3, default, ("YES", "NO"))


def index_column(name: str) -> Column[str]:
    """Return a column that marks whether the row belongs to a live job."""
    return one_of(name, 7, "CURRENT", states.Index)

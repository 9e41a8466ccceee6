"""The columns of which tables are made, in the words of SQLAlchemy: for ``oar.lib.db.schema``."""

from collections.abc import Iterable

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, MetaData, String, Table, Text, text
from sqlalchemy.schema import SchemaItem

from oar.lib.jobs import states

metadata = MetaData()


def table(name: str, *parts: SchemaItem) -> Table:
    """Return the table; an enumeration's CHECK is named after its table and column."""
    described = Table(name, metadata, *parts)
    for column in described.columns:
        values = column.info.get("values")
        if values:
            listed = ", ".join(f"'{value}'" for value in values)
            described.append_constraint(
                CheckConstraint(f"{column.name} IN ({listed})", name=f"{name}_{column.name}_check")
            )
    return described


def sequence_number(name: str) -> Column[int]:
    """A number from a sequence of its own."""
    return Column(name, BigInteger, primary_key=True)


def key(name: str) -> Column[int]:
    """A number that is, or is a part of, the primary key, and comes from another table."""
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


def resource_key() -> Column[int]:
    return Column("resource_id", Integer, primary_key=True, autoincrement=False)


def number(name: str, default: int = 0) -> Column[int]:
    """A date, a duration, an id or an amount."""
    return Column(name, BigInteger, nullable=False, server_default=text(str(default)))


def integer(name: str, default: int = 0) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=text(str(default)))


def string(name: str, length: int, default: str = "") -> Column[str]:
    return Column(name, String(length), nullable=False, server_default=default)


def long_text(name: str, default: str = "") -> Column[str]:
    return Column(name, Text, nullable=False, server_default=default)


def one_of(name: str, length: int, default: str, values: Iterable[str]) -> Column[str]:
    """An enumeration."""
    return Column(name, String(length), nullable=False, server_default=default, info={"values": list(values)})


def flag(name: str, default: str = "NO") -> Column[str]:
    return one_of(name, 3, default, ("YES", "NO"))


def index_column(name: str) -> Column[str]:
    """Whether the row is one of a live job."""
    return one_of(name, 7, "CURRENT", states.Index)

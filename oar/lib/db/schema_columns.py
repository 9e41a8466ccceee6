"""Columns of tables in SQLAlchemy, for ``oar.lib.db.schema``."""

from collections.abc import Iterable

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, MetaData, String, Table, Text, text
from sqlalchemy.schema import SchemaItem

from oar.lib.jobs import states

metadata = MetaData()


def table(name: str, *parts: SchemaItem) -> Table:
    """Return the table. The CHECK of an enumeration is named after its table and column."""
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

"""The idiom of oar/lib/db: a file, its table and the attribute of a transaction have one name."""

from importlib import import_module

import pytest

from oar.lib.db.statements import Table
from oar.lib.db.transaction import Lazy, Transaction
from tests.unit.sources import modules

#: What tables may import of their own package.
BASE = {"statements", "lock_keys", "predicates", "reservation_predicates", "schema", "time_pieces"}


def tables_of(module: str) -> list[str]:
    """Return the names of the tables that a module defines."""
    values = vars(import_module(module)).values()
    classes = [value for value in values if isinstance(value, type) and value.__module__ == module]
    return [value.__name__ for value in classes if issubclass(value, Table) and value is not Table]


TABLES = {
    name.rpartition(".")[2]: tables
    for name in modules()
    if name.startswith("oar.lib.db.") and (tables := tables_of(name))
}


@pytest.mark.parametrize("file", TABLES)
def test_a_file_has_one_table_which_is_named_like_it(file: str) -> None:
    assert TABLES[file] == [file.title().replace("_", "")]


def test_a_transaction_has_all_tables_and_no_others() -> None:
    assert {name for name, value in vars(Transaction).items() if isinstance(value, Lazy)} == TABLES.keys()


@pytest.mark.parametrize("file", TABLES)
def test_a_table_uses_no_other_table(file: str) -> None:
    imports = [name for name in modules()[f"oar.lib.db.{file}"].imports() if name.startswith("oar.lib.db.")]
    assert {name.split(".")[3] for name in imports} <= BASE

"""The idiom of oar/lib/db: a file, its table and the attribute of a transaction have one name."""

from importlib import import_module

import pytest

from oar.lib.db.sql.statements import Table
from oar.lib.db.transaction import Lazy, Transaction
from tests.unit.sources import modules

#: What tables may import of their own package.
BASE = {"statements", "lock_keys", "predicates", "reservation_predicates", "schema", "time_pieces"}


def file_of(module: str) -> str:
    """Return the name of the file of a module, without its end."""
    return module.rpartition(".")[2]


def tables_of(module: str) -> list[str]:
    """Return the names of the tables that a module defines."""
    values = vars(import_module(module)).values()
    classes = [value for value in values if isinstance(value, type) and value.__module__ == module]
    return [value.__name__ for value in classes if issubclass(value, Table) and value is not Table]


TABLES = {name: tables for name in modules() if name.startswith("oar.lib.db.") and (tables := tables_of(name))}


@pytest.mark.parametrize("module", TABLES)
def test_a_file_has_one_table_which_is_named_like_it(module: str) -> None:
    assert TABLES[module] == [file_of(module).title().replace("_", "")]


def test_a_transaction_has_all_tables_and_no_others() -> None:
    tables = {name for name, value in vars(Transaction).items() if isinstance(value, Lazy)}
    assert tables == {file_of(module) for module in TABLES}


@pytest.mark.parametrize("module", TABLES)
def test_a_table_uses_no_other_table(module: str) -> None:
    imports = [name for name in modules()[module].imports() if name.startswith("oar.lib.db.")]
    assert {name.split(".")[4] for name in imports} <= BASE

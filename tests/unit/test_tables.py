"""The classes of statements: attributes of a transaction, none of which uses another one."""

from importlib import import_module

import pytest

from oar.lib.db.statements import Table
from oar.lib.db.transaction import Lazy, Transaction
from tests.unit.sources import modules
from tests.unit.test_layers import has_statements


def classes_of(module: str) -> set[type]:
    """Return the classes of statements that a module defines."""
    values = vars(import_module(module)).values()
    classes = {value for value in values if isinstance(value, type) and value.__module__ == module}
    return {value for value in classes if issubclass(value, Table) and value is not Table}


MODULES = [name for name in modules() if has_statements(name) and classes_of(name)]


def test_a_transaction_has_each_class_of_statements_once() -> None:
    attributes = [value for value in vars(Transaction).values() if isinstance(value, Lazy)]
    used = [(attribute.module, attribute.class_name) for attribute in attributes]
    assert sorted(used) == sorted((name, value.__name__) for name in MODULES for value in classes_of(name))


@pytest.mark.parametrize("module", MODULES)
def test_a_class_of_statements_uses_no_other_one(module: str) -> None:
    imports = {name for name in modules()[module].imports if name in MODULES}
    assert not imports

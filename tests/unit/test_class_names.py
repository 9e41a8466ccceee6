"""A class name means one thing: no two modules define a class of the same name.

See CONTRIBUTING.md, "Seven rules".
"""

import ast

from tests.unit.sources import modules, tools

#: Names that several modules may define, each with the reason why two names would be worse than one.
SHARED: dict[str, str] = {}


def homes_by_class_name() -> dict[str, list[str]]:
    """Return the modules that define each class name at their top level."""
    homes: dict[str, list[str]] = {}
    for home, module in {**modules(), **tools()}.items():
        for statement in module.tree.body:
            if isinstance(statement, ast.ClassDef):
                homes.setdefault(statement.name, []).append(home)
    return homes


def test_no_two_modules_define_a_class_of_the_same_name() -> None:
    shared = {name: homes for name, homes in homes_by_class_name().items() if len(homes) > 1}
    assert {name: homes for name, homes in shared.items() if name not in SHARED} == {}


def test_each_exception_is_needed_and_has_a_reason() -> None:
    homes = homes_by_class_name()
    assert [name for name, reason in SHARED.items() if len(homes.get(name, ())) < 2 or not reason] == []
    assert len(SHARED) < 10

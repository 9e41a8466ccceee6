"""Tests by their names, for the tables of what they prove: ``unit/test_limits::test_a``, or a file as a whole."""

import ast
from collections.abc import Iterator
from functools import cache

from tests.documents import SOURCE


def exists(name: str) -> bool:
    """Whether there is such a test, or such a file with tests."""
    file, _, test = name.partition("::")
    return test in names_in(file) if test else bool(names_in(file))


@cache
def names_in(file: str) -> frozenset[str]:
    """Return the tests of a file, those of classes with the name of their class."""
    tree = ast.parse((SOURCE / "tests" / f"{file}.py").read_text(encoding="utf-8"))
    return frozenset(_names(tree, ""))


def _names(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, ast.ClassDef):
            yield from _names(each, f"{each.name}::")
        elif isinstance(each, ast.FunctionDef) and each.name.startswith("test_"):
            yield prefix + each.name

"""The named statements of the library, as the server is asked to prepare them."""

import importlib
import re
from dataclasses import dataclass

from tests.unit.sources import modules
from tests.unit.test_layers import has_statements

_STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\s")
_PARAMETER = re.compile(r"%\((\w+)\)s|%s|%%")
_VALUES = re.compile(r"\(([^()]*)\)\s*VALUES %s")
_ROWS = re.compile(r"\(VALUES %s\)\s*(?:AS\s+)?\w+\s*\(([^()]*)\)")


@dataclass(frozen=True)
class Statement:
    """A named constant, or one of the statements in it, with ``$1``, ``$2`` for its parameters."""

    name: str
    sql: str
    parameters: int

    def __str__(self) -> str:
        return self.name


def statements() -> list[Statement]:
    """Return those constants that are whole statements; templates that are still to be filled are left out."""
    found = []
    for module_name in filter(has_statements, modules()):
        module = importlib.import_module(module_name)
        label = module_name.removeprefix("oar.lib.")
        for name, value in sorted(vars(module).items()):
            if isinstance(value, str) and name.strip("_").isupper() and _STATEMENT.match(value) and "{" not in value:
                found += [_prepared(f"{label}.{name}", part) for part in value.split(";") if part.strip()]
    return found


def _prepared(name: str, text: str) -> Statement:
    text = _VALUES.sub(lambda match: f"({match[1]}) VALUES ({', '.join(['%s'] * (match[1].count(',') + 1))})", text)
    text = _ROWS.sub(lambda match: match[0].replace("%s", f"({', '.join(['%s'] * (match[1].count(',') + 1))})"), text)
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        key = match[1] or f"{match.start()}"
        return f"${numbers.setdefault(key, len(numbers) + 1)}"

    sql = _PARAMETER.sub(number, text)
    return Statement(name, sql, len(numbers))

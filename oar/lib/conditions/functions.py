"""Functions allowed in conditions: cheap, pure, and with results no longer than all arguments together."""

from collections.abc import Mapping
from typing import NamedTuple


class Function(NamedTuple):
    """The minimum and maximum number of arguments of a function."""

    least: int
    most: int


#: As many arguments as fit into a condition.
_ANY = 1000

FUNCTIONS: Mapping[str, Function] = {
    "abs": Function(1, 1),
    "ceil": Function(1, 1),
    "coalesce": Function(1, _ANY),
    "floor": Function(1, 1),
    "greatest": Function(1, _ANY),
    "least": Function(1, _ANY),
    "left": Function(2, 2),
    "length": Function(1, 1),
    "lower": Function(1, 1),
    "ltrim": Function(1, 2),
    "mod": Function(2, 2),
    "nullif": Function(2, 2),
    "position": Function(2, 2),
    "replace": Function(3, 3),
    "right": Function(2, 2),
    "round": Function(1, 2),
    "rtrim": Function(1, 2),
    "split_part": Function(3, 3),
    "strpos": Function(2, 2),
    "substr": Function(2, 3),
    "substring": Function(2, 3),
    "trim": Function(1, 2),
    "upper": Function(1, 1),
}

#: Other names of functions, as PostgreSQL has them.
ALIASES: Mapping[str, str] = {"btrim": "trim", "ceiling": "ceil", "char_length": "length"}

#: The types to which a value may be cast, by the names people write.
TYPES: Mapping[str, str] = {
    "bigint": "bigint",
    "int": "integer",
    "int4": "integer",
    "int8": "bigint",
    "integer": "integer",
    "numeric": "numeric",
    "text": "text",
    "varchar": "varchar",
}

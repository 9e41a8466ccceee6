"""Plain values as JSON, YAML, XML and Perl data, in the layouts that other programs read (commands-user.md 1.4).

A plain value is None, a bool, an int, a float, a text, a list or a mapping of these; keys are texts or ints.
"""

from enum import StrEnum


class Format(StrEnum):
    """A machine format; the first in this order wins where several are asked."""

    DUMPER = "dumper"
    XML = "xml"
    YAML = "yaml"
    JSON = "json"

"""The resource language of ``-l`` and the job types of ``-t``: text -> values -> text.

    {gpu='YES'}/switch=1/host=2/core=4+{type='licence'}/licence=1,mem=8G,walltime=1:30

A filter is SQL and may contain any of ``, + / = { }`` inside its quoted strings.  The text is therefore parsed from
left to right and never split at a character that may be part of a filter.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from oar.lib.base.errors import BadRequest
from oar.lib.base.sizes import parse_memory, write_memory
from oar.lib.base.times import DURATION_FORMS, format_duration, parse_duration
from oar.lib.jobs.records import Group, Level, Memory, Moldable
from oar.lib.jobs.states import JobLetter, JobTypeName

#: Quantities that are words, as they are stored.
ALL = -1  #: every block must be free
BEST = -2  #: all that are free, at least one
BEST_HALF = -3  #: half of those, rounded up

#: How each word may be spelt; the first spelling of a quantity is the one shown.
_WORDS = {"ALL": ALL, "BEST": BEST, "BESTHALF": BEST_HALF, "all": ALL, "HALF_BEST": BEST_HALF}
_SHOWN = {ALL: "ALL", BEST: "BEST", BEST_HALF: "BESTHALF"}

#: Names that users may write for the property that is a node.
NODE_ALIASES = frozenset({"nodes", "node"})

_LEVEL = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*([0-9]{1,10}|[A-Za-z_]+)\s*\Z", re.ASCII)
_WALLTIME = re.compile(r"\s*walltime\s*=([^,]*)")
_MEMORY = re.compile(r"\s*mem(_per_core)?\s*=([^,]*)")
_LARGEST_QUANTITY = 2**31 - 1
#: Each level is a question within a question to the database, each group a part of one: text grows with both.
MOST_LEVELS = 16
MOST_GROUPS = 1000
#: Type of a job that lasts longer than it asks, as far as that delays nobody.
GROWING = f"{JobTypeName.WALLTIME}=best"
#: Told with a request that cannot be read.
EXAMPLE = "Write it like nodes=2/core=1,walltime=1:30 with numbers from 1 on, ALL or BEST."


class ResourceRequest(NamedTuple):
    """One ``-l``.  A group without levels, or no group at all, means the default resources of the site."""

    groups: tuple[Group, ...] = ()
    walltime: int | None = None  #: seconds; None = not given
    grows: bool = False  #: it may last longer, as far as that delays nobody: ``walltime=best[:walltime]``
    memory: Memory | None = None  #: None = not given


def parse_request(text: str, *, with_memory: bool = False) -> ResourceRequest:
    """Parse the argument of one ``-l``; ``with_memory``: ``mem`` and ``mem_per_core`` are memory, not properties.

    >>> parse_request("/cpu=2,walltime=1:30")[:2]
    ((Group(filter='', levels=(Level(property='cpu', quantity=2),)),), 5400)

    Raises BadRequest; the message names the invalid part.
    """
    return _RequestReader(text, with_memory=with_memory).request()


class _RequestReader:
    """Parses a request from left to right."""

    def __init__(self, text: str, *, with_memory: bool) -> None:
        self._text = text
        self._at = 0
        self._has_memory = with_memory
        self._memory: Memory | None = None
        self._walltime: int | None = None
        self._grows = False

    def request(self) -> ResourceRequest:
        self._skip_separators()
        has_value = self._read_walltime() or self._read_memory()
        while has_value:
            if self._done():
                return ResourceRequest((), self._walltime, self._grows, self._memory)
            self._at += 1  # skip the comma after a leading walltime, or memory
            has_value = self._read_memory() if not self._memory else self._walltime is None and self._read_walltime()
        groups = [self._group()]
        while not self._done():
            if self._peek() not in "+,":
                raise BadRequest(f"cannot recognize -- {self._text[self._at :].strip()} -- resource")
            if self._read_walltime(behind=self._separators()):
                self._read_memory(behind=self._separators())
                break
            if self._read_memory(behind=self._separators()):
                self._read_walltime(behind=self._separators())
                break
            self._skip_separators()
            groups.append(self._group())
            if len(groups) > MOST_GROUPS:
                raise BadRequest(f'more than {MOST_GROUPS} parts are joined with "+": use levels, or several jobs')
        if not self._done():
            raise BadRequest(f"cannot recognize -- {self._text[self._at :].strip()} -- resource")
        return ResourceRequest(tuple(groups), self._walltime, self._grows, self._memory)

    def _read_memory(self, behind: str = "") -> bool:
        """Parse ``mem=...`` or ``mem_per_core=...`` if it is next, as ``_read_walltime`` does."""
        match = _MEMORY.match(self._text, self._at + len(behind))
        if not match or "+" in behind or not self._has_memory:
            return False
        if self._memory:
            raise BadRequest(f"memory is given twice: {self._text.strip()}")
        self._at = match.end()
        self._memory = Memory(parse_memory(match[2]), bool(match[1]))
        return True

    def _read_walltime(self, behind: str = "") -> bool:
        """Parse ``walltime=...`` if it is next (at the beginning, or after a comma); return whether it was."""
        if "+" in behind:
            return False
        match = _WALLTIME.match(self._text, self._at + len(behind))
        if not match:
            return False
        self._at = match.end()
        best, colon, least = match[1].strip().partition(":")
        self._grows = best.strip().lower() == "best"
        if self._grows:
            self._walltime = self._duration(match[1], least) if colon else None
        else:
            self._walltime = self._duration(match[1], match[1])
        return True

    def _duration(self, written: str, text: str) -> int:
        """Return the seconds of a walltime; ``written``: the complete value for the error message."""
        try:
            seconds = parse_duration(":".join(part.strip() for part in text.split(":")))
        except BadRequest:
            hint = f'\n# "{written.strip()}" is not a walltime: write {DURATION_FORMS}' if written.strip() else ""
            raise BadRequest(f"cannot recognize walltime resource value{hint}") from None
        if seconds == 0:
            raise BadRequest("walltime must be greater than 0")
        return seconds

    def _group(self) -> Group:
        condition = self._filter()
        if condition is not None and (self._done() or self._peek() in "+,"):
            return Group(condition, ())
        self._skip_slashes()
        levels = [self._level()]
        while self._peek() == "/":
            if self._ends_with_slashes():
                break
            self._at += 1
            levels.append(self._level())
            if len(levels) > MOST_LEVELS:
                raise BadRequest(f'more than {MOST_LEVELS} levels are joined with "/": name each property once')
        return Group(condition or "", tuple(levels))

    def _filter(self) -> str | None:
        """Parse ``{...}`` if it is next; the first ``}`` outside a quoted string ends it."""
        if self._peek() != "{":
            return None
        quote = ""
        for position in range(self._at + 1, len(self._text)):
            character = self._text[position]
            if quote:
                quote = "" if character == quote else quote
            elif character in "'\"":
                quote = character
            elif character == "}":
                condition = self._text[self._at + 1 : position].strip()
                self._at = position + 1
                return condition
        raise BadRequest(f"cannot recognize -- {self._text[self._at :].strip()} -- resource")

    def _level(self) -> Level:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in "/+,{}":
            self._at += 1
        text = self._text[start : self._at]
        match = _LEVEL.match(text)
        quantity = _quantity(match[2]) if match else None
        if not match or quantity is None or match[1] == "walltime":
            shown = text.strip() or self._text.strip()
            raise BadRequest(f"cannot recognize the resource description: {shown}\n# {EXAMPLE}")
        return Level(match[1], quantity)

    def _separators(self) -> str:
        """Return the next run of equal separators; OAR 2.5 treated such a run as one separator."""
        separator = self._peek()
        end = self._at
        while separator in ("+", ",") and self._text[end : end + 1] == separator:
            end += 1
        return self._text[self._at : end]

    def _skip_separators(self) -> None:
        self._at += len(self._separators())

    def _skip_slashes(self) -> None:
        while self._peek() == "/":
            self._at += 1

    def _ends_with_slashes(self) -> bool:
        """Skip slashes after the last level of a group; return whether only slashes are left in the group."""
        start = self._at
        self._skip_slashes()
        if self._done() or self._peek() in "+,":
            return True
        self._at = start
        return False

    def _peek(self) -> str:
        """Return the next character that is not blank; '' at the end."""
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._text[self._at : self._at + 1]

    def _done(self) -> bool:
        return not self._peek()


def _quantity(text: str) -> int | None:
    if text in _WORDS:
        return _WORDS[text]
    if text.isdigit() and 0 < int(text) <= _LARGEST_QUANTITY:
        return int(text)
    return None


def name_nodes(groups: Iterable[Group], columns: Iterable[str], node_property: str) -> tuple[Group, ...]:
    """Replace ``nodes`` and ``node`` with the node property, unless a column has that name."""
    aliases = NODE_ALIASES.difference(columns)
    return tuple(
        group._replace(
            levels=tuple(
                level._replace(property=node_property) if level.property in aliases else level for level in group.levels
            )
        )
        for group in groups
    )


def format_quantity(quantity: int) -> str:
    """Return a quantity as users write it."""
    return _SHOWN.get(quantity) or str(quantity)


def format_group(group: Group) -> str:
    """Return ``{filter}/property=n/...``; the filter only if there is one."""
    condition = f"{{{group.filter}}}" if group.filter else ""
    return condition + "".join(f"/{level.property}={format_quantity(level.quantity)}" for level in group.levels)


def format_request(groups: Iterable[Group], walltime: int | None, memory: Memory | None = None) -> str:
    """Return the text of one ``-l``.

    >>> format_request((Group("", (Level("host", 2),)),), 3600)
    '/host=2,walltime=1:0:0'
    """
    parts = ["+".join(format_group(group) for group in groups)]
    if memory:
        parts.append(f"mem{'_per_core' if memory.is_per_core else ''}={write_memory(memory.mib)}")
    if walltime is not None:
        parts.append(f"walltime={format_duration(walltime)}")
    return ",".join(part for part in parts if part)


def texts_of(requests: Iterable[ResourceRequest]) -> list[str]:
    """Return the text of each ``-l``."""
    return [format_request(request.groups, request.walltime, request.memory) for request in requests]


def format_wanted_resources(moldables: Iterable[Moldable]) -> str:
    """Return the ``wanted_resources`` of oarstat: ``-l "..." `` for each alternative, each followed by a space."""
    return "".join(
        [f'-l "{_format_stored(moldable.groups, moldable.walltime, moldable.memory)}" ' for moldable in moldables]
    )


#: Many jobs ask for the same.
_format_stored = lru_cache(maxsize=1024)(format_request)


# --------------------------------------------------------------------------------------------------------- job types

#: Spellings of old documents, and what they mean.
_OLD_TYPE_NAMES: Mapping[str, str] = {
    "set_placeholder": JobTypeName.PLACEHOLDER,
    "use_placeholder": JobTypeName.ALLOWED,
    "allow": JobTypeName.ALLOWED,
}
#: Types with which a job may start on sleeping nodes.
_STANDBY = (JobTypeName.DEPLOY, JobTypeName.COSYSTEM, JobTypeName.NOOP)
_TYPE = re.compile(r"([^=:]*)(?:[=:](.*))?\Z", re.DOTALL)


class TypeText(NamedTuple):
    """One ``-t``: its name and the text after the first ``=`` or ``:``; None if there is none."""

    name: str
    value: str | None = None


def parse_type(text: str) -> TypeText:
    """Parse one ``-t``.

    >>> parse_type("token:matlab=2"), parse_type("besteffort")
    (TypeText(name='token', value='matlab=2'), TypeText(name='besteffort', value=None))
    """
    match = _TYPE.match(text)
    name, value = (match[1], match[2]) if match else (text, None)
    name = name.strip()
    return TypeText(_OLD_TYPE_NAMES.get(name, name), value)


def parse_token(value: str) -> tuple[str, int]:
    """Return name and number of tokens in the value of a type ``token:<name>=<number>``.  Raises BadRequest.

    >>> parse_token("matlab=2")
    ('matlab', 2)
    """
    name, _, count = value.partition("=")
    if not (name and count.isascii() and count.isdigit()):
        raise BadRequest(f"token:{value} is not token:<name>=<number>")
    return name, int(count)


class JobTypes:
    """The types of one job, with queries."""

    __slots__ = ("_types",)

    def __init__(self, texts: Iterable[str]) -> None:
        self._types = tuple(parse_type(text) for text in texts)

    def __contains__(self, name: JobTypeName) -> bool:
        return any(type_.name == name for type_ in self._types)

    def __iter__(self) -> Iterator[TypeText]:
        return iter(self._types)

    def value(self, name: JobTypeName) -> str | None:
        """Return the value of the last type with this name; None if there is no such type or it has no value."""
        return next((type_.value for type_ in reversed(self._types) if type_.name == name), None)

    def values(self, name: JobTypeName) -> tuple[str, ...]:
        """Return the values of all types with this name."""
        return tuple(type_.value for type_ in self._types if type_.name == name and type_.value is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """The distinct names, sorted (``T=`` of the job message)."""
        return tuple(sorted({type_.name for type_ in self._types}))

    @property
    def is_standby(self) -> bool:
        """Whether the job may start on sleeping nodes without waking them (``deploy=standby`` and similar types)."""
        return any(type_.value == "standby" and type_.name in _STANDBY for type_ in self._types)

    @property
    def is_permissive(self) -> bool:
        """Whether the job may be planned on Absent and Suspected resources."""
        return self.value(JobTypeName.STATE) == "permissive"


# ------------------------------------------------------------------------------------------------------- job message


def format_job_message(
    *,
    resources: int,
    walltime: int,
    letter: JobLetter,
    name: str = "",
    queue: str = "default",
    project: str = "default",
    types: Sequence[str] = (),
    array_limit: int = 0,
    remark: str = "",
) -> str:
    """Return ``jobs.message``.

    ``array_limit``: maximum number of running jobs of its array; 0 means unlimited.

    >>> format_job_message(resources=16, walltime=7200, letter=JobLetter.BATCH, name="fem", types=["idempotent"])
    'R=16,W=2:0:0,J=B,N=fem,T=idempotent'
    """
    parts = [f"R={resources}", f"W={format_duration(walltime)}", f"J={letter}"]
    if name:
        parts.append(f"N={name}")
    if queue not in ("default", "besteffort"):
        parts.append(f"Q={queue}")
    if project != "default":
        parts.append(f"P={project}")
    if types:
        parts.append(f"T={'|'.join(JobTypes(types).names)}")
    if array_limit:
        parts.append(f"A={array_limit}")
    return ",".join(parts) + (f" ({remark})" if remark else "")

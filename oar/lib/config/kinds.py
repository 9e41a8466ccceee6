"""The kinds of values in oar.conf, and the declaration of a key.

A kind parses the text of a value, or raises ``ValueError`` with the expected form. Values that are unset are None.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

if TYPE_CHECKING:
    from oar.lib.config.idle_rules import IdleRule

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Word = TypeVar("Word", bound=str)

Words = tuple[str, ...]

#: Where the log goes if not to a file or a standard stream: the journal of systemd.
JOURNAL = ":journal:"

_TRUE = frozenset({"yes", "1", "true"})
_FALSE = frozenset({"no", "0", "false"})
_PAIR = r"""(?x)\s*(?:"(?P<dkey>[^"]*)"|'(?P<skey>[^']*)'|(?P<key>[^\s"'=:,{}]+))
        \s*(?:=>|=|:)\s*
        (?:"(?P<dvalue>[^"]*)"|'(?P<svalue>[^']*)'|(?P<value>[^\s"',{}]+))\s*(?:,|\Z)"""


class Target(Enum):
    """The external object that a value names, and its location. ``oar-conf --check`` checks that it exists."""

    NOTHING = auto()  #: no file, or one that OAR creates
    SERVER_PROGRAM = auto()  #: the program of a command line that runs on the server
    SITE_PROGRAM = auto()  #: a program on the server, relative to OARDIR
    SERVER_FILE = auto()  #: a file that the server or the API reads
    SERVER_OUTPUT = auto()  #: a file that the server writes
    SERVER_DIRECTORY = auto()
    FRONTEND_PROGRAM = auto()  #: a program that runs on frontends
    NODE = auto()  #: a program or a directory on nodes


class ValueKind(Generic[T_co]):
    """Conversion of a value from text, and to text for the sample file. ``target``: the object that the value names."""

    __slots__ = ("name", "read", "target", "write")

    def __init__(
        self,
        name: str,
        read: Callable[[str], T_co],
        write: Callable[[Any], str] = str,
        target: Target = Target.NOTHING,
    ) -> None:
        self.name = name
        self.read = read
        self.write = write
        self.target = target

    def of(self, target: Target) -> "ValueKind[T_co]":
        """Return the same kind, for values that name a target."""
        return ValueKind(self.name, self.read, self.write, target)


class Key(Generic[T]):
    """The declaration of one key. On a ``Config``, it returns the key's value, of type ``T``.

    The key is the attribute's name in upper case, unless ``key`` names it. ``aliases`` are older names. ``shipped`` is
    the value in the sample file. ``same_as`` names the option whose value is used if this one is not set. ``fixed``
    keys have no effect. ``secret`` values are never displayed.
    """

    __slots__ = ("aliases", "default", "doc", "fixed", "key", "kind", "name", "same_as", "secret", "shipped")

    def __init__(
        self,
        kind: ValueKind[T],
        default: T,
        doc: str,
        *,
        aliases: str = "",
        shipped: str | None = None,
        same_as: str = "",
        fixed: bool = False,
        secret: bool = False,
        key: str = "",
    ) -> None:
        self.kind = kind
        self.default = default
        self.doc = doc
        self.aliases = aliases.split()
        self.shipped = shipped
        self.same_as = same_as
        self.fixed = fixed
        self.secret = secret
        self.name = ""
        self.key = key

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.key = self.key or name.upper()

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: "Values", owner: type) -> T: ...
    def __get__(self, instance: "Values | None", owner: type) -> Self | T:
        if instance is None:
            return self
        values = instance.changed
        if self.name in values:
            return values[self.name]  # type: ignore[return-value]  # each value was parsed by the option's own kind
        return getattr(instance, self.same_as) if self.same_as else self.default

    def __set__(self, instance: "Values", value: T) -> None:
        raise AttributeError(f"{self.name} is fixed once the configuration is read")

    def read(self, text: str) -> T:
        """Parse a text. Raises ValueError with the expected form."""
        if text == "" and (self.default is None or self.same_as):
            return self.default
        return self.kind.read(text)

    def text(self, value: object) -> str:
        """Return the text of a value in oar.conf."""
        return "" if value is None else self.kind.write(value)


class Values:
    """Immutable values of declared options. Options without a value have their defaults."""

    __slots__ = ("changed",)

    #: Only what differs from the declarations.
    changed: Mapping[str, object]

    def __init__(self, **changed: object) -> None:
        for name in changed:
            if not isinstance(getattr(type(self), name, None), Key):
                raise TypeError(f"{name} is not an option of oar.conf")
        object.__setattr__(self, "changed", changed)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} is fixed once the configuration is read")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.changed == other.changed

    __hash__ = None  # type: ignore[assignment]  # values may be mappings

    def replace(self, **changed: object) -> Self:
        """Return a copy with new values for some options."""
        return type(self)(**{**self.changed, **changed})

    @classmethod
    def options(cls) -> "list[Key[Any]]":
        """Return all declarations, in order."""
        return [value for value in vars(cls).values() if isinstance(value, Key)]


def unset(
    kind: ValueKind[T],
    doc: str,
    *,
    aliases: str = "",
    shipped: str | None = None,
    secret: bool = False,
    fixed: bool = False,
) -> Key[T | None]:
    """Return the declaration of an option that is None if oar.conf does not set it."""
    return Key[T | None](kind, None, doc, aliases=aliases, shipped=shipped, secret=secret, fixed=fixed)


def or_empty(kind: ValueKind[T]) -> ValueKind[T | None]:
    """Return the kind with an empty text as None, for options whose default is another value."""
    return ValueKind(kind.name, lambda text: kind.read(text) if text else None, kind.write, kind.target)


# -- kinds ----------------------------------------------------------------------------------------------------------


def _read_boolean(text: str) -> bool:
    answer = text.strip().lower()
    if answer not in _TRUE | _FALSE:
        raise ValueError("write yes or no")
    return answer in _TRUE


def at_least(least: int, name: str = "integer") -> ValueKind[int]:
    """Return the kind of integers that are at least ``least``."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip(), re.ASCII):
            raise ValueError("write a whole number")
        if int(text) < least:
            raise ValueError(f"write a number not below {least}")
        return int(text)

    return ValueKind(name, read)


def one_of(*choices: Word, renamed: Mapping[str, Word] | None = None) -> ValueKind[Word]:
    """Return the kind of one of these choices, case-insensitive. ``renamed``: older spellings."""
    by_lower = {choice.lower(): choice for choice in choices} | dict(renamed or {})

    def read(text: str) -> Word:
        if text.lower() not in by_lower:
            raise ValueError(f"write one of: {', '.join(choice or '(empty)' for choice in choices)}")
        return by_lower[text.lower()]

    return ValueKind(" | ".join(choices), read)


def some_of(*choices: str) -> ValueKind[Words]:
    """Return the kind of a list that may contain only these choices."""

    def read(text: str) -> Words:
        words = _read_words(text)
        if unknown := [word for word in words if word not in choices]:
            raise ValueError(f"{unknown[0]!r} is not one of: {', '.join(choices)}")
        return words

    return ValueKind(f"list of: {', '.join(choices)}", read, " ".join)


def _read_property(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text, re.ASCII):
        raise ValueError("write the name of a property, as oarproperty --list shows it")
    return text


def _read_port(text: str) -> int:
    port = at_least(0).read(text)
    if port > 65535:
        raise ValueError("write a port number, 0 to 65535")
    return port


def _read_ports(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", text.strip(), re.ASCII)
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 0 < first <= last <= 65535:
        raise ValueError("write the first and the last port, such as 40000-40999")
    return first, last


def _read_float(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError("write a number") from None
    if not math.isfinite(number):
        raise ValueError("write a finite number")
    return number


def _read_host(text: str) -> str:
    from oar.lib.base.host_names import is_host_name

    if not is_host_name(text):
        raise ValueError("write a host name or an address")
    return text


def _read_servers(text: str) -> Words:
    servers = tuple(map(_read_host, _read_words(text)))
    if not servers or len(set(servers)) < len(servers):
        raise ValueError("write the host name or address of each server once")
    return servers


def _read_hosts(text: str) -> str:
    from oar.lib.base.host_names import read_addresses

    if not read_addresses(text, 1):
        raise ValueError("name at least one host")
    return text


def _read_path(text: str) -> str:
    if not text.startswith(("/", "~")) or "\0" in text:
        raise ValueError("write an absolute path")
    return text


def _read_address_path(text: str) -> str:
    """Return a URL path, with a leading slash and no trailing slash: '' for the whole host."""
    path = f"/{text.strip('/')}".rstrip("/")
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)*", path):
        raise ValueError("write a path of letters, digits and . _ ~ -, such as /oar")
    return path


def _read_log_file(text: str) -> str:
    return text if text in (":stdout:", ":stderr:", JOURNAL) else _read_path(text)


def _read_log_format(text: str) -> str:
    if text != "json" and (text.count("%s") != 6 or text.replace("%s", "").count("%") % 2):
        raise ValueError("write json, or a text with six %s")
    return text


def _read_command(text: str) -> str:
    from oar.lib.base.errors import BadRequest
    from oar.lib.base.texts import shell_words

    try:
        arguments = shell_words(text)
    except BadRequest as error:
        raise ValueError(f"write a command line: {error}") from None
    if not arguments:
        raise ValueError("write a command line")
    return text


def _read_request(text: str) -> str:
    from oar.lib.base.errors import BadRequest
    from oar.lib.submission.resource_request import parse_request

    try:
        groups = parse_request(text).groups
    except BadRequest as error:
        raise ValueError(f"write a request as of oarsub -l: {error}") from None
    if not all(group.levels for group in groups) or not groups:
        raise ValueError("write a request as of oarsub -l, with resources: /resource_id=1")
    return text


def _read_idle(text: str, kind: str) -> "tuple[IdleRule, ...]":
    if not text.strip():
        return ()
    from oar.lib.config.idle_rules import parse_rules  # not for the commands of sites without rules

    return parse_rules(text, kind)


def _write_idle(rules: "tuple[IdleRule, ...]", kind: str) -> str:
    return "; ".join(rule.text(kind) for rule in rules)


def _read_kept(text: str) -> tuple[tuple[str, int], ...]:
    if re.fullmatch(r"\s*[0-9]{1,9}\s*", text, re.ASCII):
        text = f"type='default':{text}"
    group = re.compile(r"\s*(.+?)\s*:\s*(?:nodes\s*=\s*)?([0-9]{1,9})\s*(?:[&,]|\Z)", re.DOTALL)
    groups: list[tuple[str, int]] = []
    position = 0
    while text[position:].strip():
        match = group.match(text, position)
        if match is None:
            raise ValueError("write SQL:number, joined by &")
        groups.append((match[1], int(match[2])))
        position = match.end()
    return tuple(groups)


def _write_kept(groups: tuple[tuple[str, int], ...]) -> str:
    return " & ".join(f"{condition}:{number}" for condition, number in groups)


def _read_boot_limits(text: str) -> tuple[tuple[int, int], ...]:
    if re.fullmatch(r"\s*[0-9]{1,9}\s*", text, re.ASCII):
        text = f"1:{text.strip()}"
    pairs = [re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", word, re.ASCII) for word in text.split()]
    limits = sorted((int(pair[1]), int(pair[2])) for pair in pairs if pair)
    if not limits or None in pairs or not all(seconds for _, seconds in limits):
        raise ValueError("write seconds, or pairs such as 1:500 11:1000: number of nodes, seconds")
    return tuple(limits)


def _write_boot_limits(limits: tuple[tuple[int, int], ...]) -> str:
    if len(limits) == 1:
        return str(limits[0][1])
    return " ".join(f"{number}:{seconds}" for number, seconds in limits)


def _read_networks(text: str) -> Words:
    import ipaddress

    networks = _read_words(text)
    for network in networks:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError:
            raise ValueError(f"{network!r} is not a network: write networks such as 10.0.0.0/8 or fd00::/8") from None
    return networks


def _read_proxies(text: str) -> Words:
    proxies = _read_words(text)
    _read_networks(" ".join(each for each in proxies if not re.fullmatch(r"unix:[A-Za-z0-9_][A-Za-z0-9_.-]*", each)))
    return proxies


def _read_patterns(text: str) -> Words:
    patterns = tuple(text.split())
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return patterns


def _read_words(text: str) -> Words:
    return tuple(text.replace(",", " ").split())


def _read_items(text: str) -> Words:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def read_pairs(text: str) -> dict[str, str]:
    """Parse ``{"a": 1}``, ``{ a => 1, b => 'x y' }`` or ``a=1, b=2``. Return a dict of texts.

    >>> read_pairs("{ first => 75, default => 25 }")
    {'first': '75', 'default': '25'}
    """
    text = text.strip()
    if text.startswith("{"):
        pairs = _json_pairs(text)
        if pairs is not None:
            return pairs
        if not text.endswith("}"):
            raise ValueError("write JSON or { name => value, ... } on one line")
        text = text[1:-1]
    return _loose_pairs(text)


def _json_pairs(text: str) -> dict[str, str] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict) or any(isinstance(item, (dict, list)) for item in value.values()):
        raise ValueError("write one name and one value per pair")
    return {key: item if isinstance(item, str) else json.dumps(item) for key, item in value.items()}


def _loose_pairs(text: str) -> dict[str, str]:
    pair = re.compile(_PAIR)
    pairs: dict[str, str] = {}
    position = 0
    while text[position:].strip():
        match = pair.match(text, position)
        if match is None:
            raise ValueError("write JSON or { name => value, ... } on one line")
        key = next(part for part in match.group("dkey", "skey", "key") if part is not None)
        pairs[key] = next(part for part in match.group("dvalue", "svalue", "value") if part is not None)
        position = match.end()
    return pairs


def _write_pairs(pairs: Mapping[str, object]) -> str:
    if not pairs:
        return ""
    return "{ " + ", ".join(f"{_quoted(key)} => {_quoted(value)}" for key, value in pairs.items()) + " }"


def _quoted(value: object) -> str:
    text = " ".join(value) if isinstance(value, tuple) else str(value)
    if re.fullmatch(r"[\w.+*-]+", text):
        return text
    return f'"{text}"' if "'" in text else f"'{text}'"


def table(kind: ValueKind[T]) -> ValueKind[Mapping[str, T]]:
    """Return the kind of a table of names and values of ``kind``: JSON or the Perl form, on one line."""

    def read(text: str) -> Mapping[str, T]:
        return {key: kind.read(value) for key, value in read_pairs(text).items()}

    return ValueKind(f"{{ name => {kind.name}, ... }}", read, _write_pairs, kind.target)


def per_queue(kind: ValueKind[T]) -> ValueKind[Mapping[str, T]]:
    """Return the kind of one value for all queues, or a table by queue in which ``_`` stands for the other queues."""

    def read(text: str) -> Mapping[str, T]:
        if not re.search(r"[={:]", text):
            return {"_": kind.read(text)}
        return {key: kind.read(value) for key, value in read_pairs(text).items()}

    def write(values: Mapping[str, T]) -> str:
        return kind.write(values["_"]) if set(values) == {"_"} else _write_pairs(values)

    return ValueKind(f"{kind.name}, or a table by queue", read, write)


TEXT: ValueKind[str] = ValueKind("text", str)
PROPERTY: ValueKind[str] = ValueKind("property of resources", _read_property)
BOOLEAN: ValueKind[bool] = ValueKind("yes | no", _read_boolean, lambda value: "yes" if value else "no")
ANY_INTEGER: ValueKind[int] = at_least(-(2**62))
INTEGER: ValueKind[int] = at_least(0)
POSITIVE: ValueKind[int] = at_least(1)
SECONDS: ValueKind[int] = at_least(0, "seconds")
SOME_SECONDS: ValueKind[int] = at_least(1, "seconds")
DAYS: ValueKind[int] = at_least(0, "days")
PORT: ValueKind[int] = ValueKind("port", _read_port)
PORTS: ValueKind[tuple[int, int]] = ValueKind(
    "ports, such as 40000-40999", _read_ports, lambda ports: f"{ports[0]}-{ports[1]}"
)
FLOAT: ValueKind[float] = ValueKind("number", _read_float, lambda value: f"{value:g}")
HOST: ValueKind[str] = ValueKind("host", _read_host)
SERVER_HOSTS: ValueKind[Words] = ValueKind("hosts", _read_servers, " ".join)
DATABASE_HOSTS: ValueKind[str] = ValueKind("hosts with or without ports, or directory of a socket", _read_hosts)
PATH: ValueKind[str] = ValueKind("path", _read_path)
ADDRESS_PATH: ValueKind[str] = ValueKind("path of addresses", _read_address_path)
SERVER_FILE = PATH.of(Target.SERVER_FILE)
SERVER_OUTPUT = PATH.of(Target.SERVER_OUTPUT)
SERVER_DIRECTORY = PATH.of(Target.SERVER_DIRECTORY)
FRONTEND_PROGRAM = PATH.of(Target.FRONTEND_PROGRAM)
NODE_PATH = PATH.of(Target.NODE)
LOG_FILE: ValueKind[str] = ValueKind(
    "path, :journal:, :stdout: or :stderr:", _read_log_file, target=Target.SERVER_OUTPUT
)
LOG_FORMAT: ValueKind[str] = ValueKind("json, or a text with six %s", _read_log_format)
COMMAND: ValueKind[str] = ValueKind("command line", _read_command)
SERVER_COMMAND = COMMAND.of(Target.SERVER_PROGRAM)
NODE_COMMAND = COMMAND.of(Target.NODE)
SITE_PROGRAM = TEXT.of(Target.SITE_PROGRAM)
REQUEST: ValueKind[str] = ValueKind("request of resources", _read_request)
WORDS: ValueKind[Words] = ValueKind("list", _read_words, " ".join)
ITEMS: ValueKind[Words] = ValueKind("list, separated by commas", _read_items, ",".join)
NETWORKS: ValueKind[Words] = ValueKind("networks", _read_networks, " ".join)
PROXIES: ValueKind[Words] = ValueKind("networks, or unix:LOGIN", _read_proxies, " ".join)
PATTERNS: ValueKind[Words] = ValueKind("regular expressions, separated by blanks", _read_patterns, " ".join)
KEPT_GROUPS: ValueKind[tuple[tuple[str, int], ...]] = ValueKind("SQL:number & ...", _read_kept, _write_kept)
IDLE_GPU_RULES: "ValueKind[tuple[IdleRule, ...]]" = ValueKind(
    "rules about idle GPUs", partial(_read_idle, kind="GPU"), partial(_write_idle, kind="GPU")
)
IDLE_CPU_RULES: "ValueKind[tuple[IdleRule, ...]]" = ValueKind(
    "rules about idle CPUs", partial(_read_idle, kind="CPU"), partial(_write_idle, kind="CPU")
)
BOOT_LIMITS: ValueKind[tuple[tuple[int, int], ...]] = ValueKind(
    "seconds, or number:seconds ...", _read_boot_limits, _write_boot_limits
)
NUMBERS: ValueKind[Mapping[str, float]] = table(FLOAT)
SERVER_COMMANDS: ValueKind[Mapping[str, str]] = table(SERVER_COMMAND)


def _refuse_mysql(text: str) -> str:
    if text.lower() in ("mysql", "mariadb"):
        raise ValueError("MySQL is not supported: move the data to PostgreSQL and write Pg")
    return one_of("Pg", renamed={"psql": "Pg", "pgsql": "Pg", "postgresql": "Pg"}).read(text)


_CGROUP_MANAGERS = one_of("auto", "cgroup2", "cgroup1", "none")


def _refuse_systemd(text: str) -> str:
    if text.lower() == "systemd":
        raise ValueError(
            "slices of systemd are not supported: use auto, which keeps job groups apart from those of systemd"
        )
    return _CGROUP_MANAGERS.read(text)


DATABASE_TYPE = ValueKind("Pg", _refuse_mysql)
META_SCHEDULER = ValueKind(
    "command line",
    lambda text: {"oar_meta_sched": "kao", "oar_meta_scheduler": "kao"}.get(text) or COMMAND.read(text),
    target=Target.SITE_PROGRAM,
)
CGROUP_MANAGER: ValueKind[str] = ValueKind(_CGROUP_MANAGERS.name, _refuse_systemd)

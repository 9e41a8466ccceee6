"""Names of hosts: validation, and short lists of them for people. Programs get every name in a separate field."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

#: Characters of a name, at most: those of the column.
LONGEST = 100

#: What stands between two dots.  Sites use underscores, although RFC 1123 does not know them.
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?", re.ASCII)
#: What resolvers read as a number, and a name of numbers alone as an address.
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*", re.ASCII)


def is_host_name(text: str) -> bool:
    """Return whether a text is a host name (RFC 1123, with underscores), or an IPv4 or IPv6 address.

    >>> is_host_name("node-1.site"), is_host_name("fd00::1"), is_host_name("bad name;x"), is_host_name("-1")
    (True, True, False, False)
    """
    if len(text) > LONGEST:
        return False
    labels = text.split(".")
    if ":" in text or all(map(_NUMBER.fullmatch, labels)):
        return _is_address(text)
    return all(map(_LABEL.fullmatch, labels))


def _is_address(text: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


#: The port at the end of an address; an IPv6 address with a port is in brackets.
_WITH_PORT = re.compile(r"(?:\[(?P<bracketed>[^]]*)\]|(?P<plain>[^:]*|/.*))(?::(?P<port>[0-9]{1,5}))?")


def read_addresses(text: str, default_port: int) -> tuple[tuple[str, int], ...]:
    """Return the hosts and ports of a list with blanks or commas. Raises ValueError.

    >>> read_addresses("pg1, pg2:5433 fd00::1 [fd00::2]:5433", 5432)
    (('pg1', 5432), ('pg2', 5433), ('fd00::1', 5432), ('fd00::2', 5433))
    """
    return tuple(_read_address(word, default_port) for word in text.replace(",", " ").split())


def _read_address(word: str, default_port: int) -> tuple[str, int]:
    match = None if is_host_name(word) else _WITH_PORT.fullmatch(word)
    host = (match["bracketed"] or match["plain"] or "") if match else word
    port = int(match["port"] or default_port) if match else default_port
    if not (is_host_name(host) or host.startswith("/")):
        raise ValueError(f"{word} must be a host name, an address or the directory of a socket")
    if not 0 < port < 65536:
        raise ValueError(f"the port of {word} must be between 1 and 65535")
    return host, port


#: The last number of the first label: hosts that differ only there are listed together.
_NUMBERED = re.compile(r"([^.:]*?)([0-9]{1,15})([^.:0-9]*(?:\.[^:]*)?)", re.ASCII)
#: So many hosts are listed with their whole names; of more hosts, so many names and ranges are listed.
_WHOLE, _LISTED = 2, 8
#: So many different failures are listed.
_FAILURES = 4


class _Form(NamedTuple):
    """The common part of hosts that are listed together."""

    before: str
    after: str = ""
    digits: int | None = None  #: of each number, with zeros before it; 0: as many as it needs; None: there is none


class _Run(NamedTuple):
    """Hosts with consecutive numbers. For a host without a number, only the form is used."""

    form: _Form
    first: int
    last: int


def shorten_host_list(names: Iterable[str]) -> str:
    """Return host names as text. Consecutive numbers are combined if there are more than two hosts.

    After the first ranges, only the number of the other hosts is given.

    >>> shorten_host_list(f"node-{number}" for number in range(1, 101))
    'node-[1-100]'
    >>> shorten_host_list(["gpu-2", "gpu-1"]), shorten_host_list(["n11.a", "n09.a", "n10.a"])
    ('gpu-1, gpu-2', 'n[09-11].a')
    """
    hosts = sorted(set(names))
    if len(hosts) <= _WHOLE:
        return ", ".join(hosts)
    runs = list(_runs(hosts))
    text = ", ".join(_text(form, list(some)) for form, some in groupby(runs[:_LISTED], key=lambda run: run.form))
    others = sum(run.last - run.first + 1 for run in runs[_LISTED:])
    return f"{text} and {others} other{'s' * (others > 1)}" if others else text


def describe_host_failures(failures: Mapping[str, str]) -> str:
    """Return the failures with the hosts that each one concerns. ``failures``: the failure of each host.

    >>> describe_host_failures({"n1": "no answer", "n2": "disk full", "n3": "no answer"})
    'n1, n3: no answer; n2: disk full'
    """
    hosts: dict[str, list[str]] = {}
    for host, failure in sorted(failures.items()):
        hosts.setdefault(failure, []).append(host)
    texts = [f"{shorten_host_list(some)}: {failure}" for failure, some in hosts.items()]
    others = [host for some in list(hosts.values())[_FAILURES:] for host in some]
    return "; ".join([*texts[:_FAILURES], *([f"others: {shorten_host_list(others)}"] if others else [])])


def _runs(hosts: Sequence[str]) -> Iterator[_Run]:
    matches = {host: _NUMBERED.fullmatch(host) for host in hosts}
    padded = {(match[1], match[3], len(match[2])) for match in matches.values() if match and re.match("0.", match[2])}
    forms: dict[_Form, list[int]] = {}
    for host, match in matches.items():
        before, digits, after = match.groups() if match else (host, "", "")
        width = len(digits) if (before, after, len(digits)) in padded else 0
        forms.setdefault(_Form(before, after, width if match else None), []).append(int(digits or 0))
    for form, numbers in forms.items():
        yield from (_Run(form, *ends) for ends in _neighbours(sorted(numbers)))


def _neighbours(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number of each sequence of consecutive numbers."""
    for _, some in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        sequence = [number for _, number in some]
        yield sequence[0], sequence[-1]


def _text(form: _Form, runs: Sequence[_Run]) -> str:
    if form.digits is None:
        return form.before
    ranges = ["-".join(f"{number:0{form.digits}}" for number in sorted({run.first, run.last})) for run in runs]
    is_one = len(runs) == 1 and runs[0].first == runs[0].last
    numbers = ranges[0] if is_one else f"[{','.join(ranges)}]"
    return f"{form.before}{numbers}{form.after}"

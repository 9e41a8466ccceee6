"""Short lists of host names for people. Programs get every name in a separate field."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

#: The last number of the first label: hosts that differ only there are told together.
_NUMBERED = re.compile(r"([^.:]*?)([0-9]{1,15})([^.:0-9]*(?:\.[^:]*)?)", re.ASCII)
#: So many hosts are told by their whole names; of more hosts, so many names and ranges are told.
_WHOLE, _TOLD = 2, 8
#: So many different failures are told.
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


def told(names: Iterable[str]) -> str:
    """Return a list of host names, with consecutive numbers combined. A long list is shortened.

    >>> told(f"node-{number}" for number in range(1, 101)), told(["gpu-2", "gpu-1"]), told(["n11.a", "n09.a", "n10.a"])
    ('node-[1-100]', 'gpu-1, gpu-2', 'n[09-11].a')
    """
    hosts = sorted(set(names))
    if len(hosts) <= _WHOLE:
        return ", ".join(hosts)
    runs = list(_runs(hosts))
    text = ", ".join(_text(form, list(some)) for form, some in groupby(runs[:_TOLD], key=lambda run: run.form))
    others = sum(run.last - run.first + 1 for run in runs[_TOLD:])
    return f"{text} and {others} other{'s' * (others > 1)}" if others else text


def told_failures(failures: Mapping[str, str]) -> str:
    """Return the failures with the hosts that each one concerns. ``failures``: the failure of each host.

    >>> told_failures({"n1": "no answer", "n2": "disk full", "n3": "no answer"})
    'n1, n3: no answer; n2: disk full'
    """
    hosts: dict[str, list[str]] = {}
    for host, failure in sorted(failures.items()):
        hosts.setdefault(failure, []).append(host)
    texts = [f"{told(some)}: {failure}" for failure, some in hosts.items()]
    others = [host for some in list(hosts.values())[_FAILURES:] for host in some]
    return "; ".join([*texts[:_FAILURES], *([f"others: {told(others)}"] if others else [])])


def _runs(hosts: Sequence[str]) -> Iterator[_Run]:
    found = {host: _NUMBERED.fullmatch(host) for host in hosts}
    padded = {(match[1], match[3], len(match[2])) for match in found.values() if match and re.match("0.", match[2])}
    forms: dict[_Form, list[int]] = {}
    for host, match in found.items():
        before, digits, after = match.groups() if match else (host, "", "")
        width = len(digits) if (before, after, len(digits)) in padded else 0
        forms.setdefault(_Form(before, after, width if match else None), []).append(int(digits or 0))
    for form, numbers in forms.items():
        yield from (_Run(form, *ends) for ends in _neighbours(sorted(numbers)))


def _neighbours(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number of each sequence of consecutive numbers."""
    for _, some in groupby(enumerate(numbers), key=lambda each: each[1] - each[0]):
        sequence = [number for _, number in some]
        yield sequence[0], sequence[-1]


def _text(form: _Form, runs: Sequence[_Run]) -> str:
    if form.digits is None:
        return form.before
    ranges = ["-".join(f"{number:0{form.digits}}" for number in sorted({run.first, run.last})) for run in runs]
    is_one = len(runs) == 1 and runs[0].first == runs[0].last
    numbers = ranges[0] if is_one else f"[{','.join(ranges)}]"
    return f"{form.before}{numbers}{form.after}"

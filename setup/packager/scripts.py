"""Maintainer scripts of the packages: the files of ``setup/debian`` and the usual handling of units.

The package starts an *enabled* unit; an administrator enables an *offered* one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from installer.target import SOURCE

_DIRECTORY = SOURCE / "setup" / "debian"
_NAMES = ("preinst", "postinst", "prerm", "postrm")
_HEAD = "#!/bin/sh\nset -e\n"
#: Placeholder line for the handling of units.
_OF_UNITS = "#UNITS#\n"


@dataclass(frozen=True)
class Units:
    """The units of a package, by their handling."""

    enabled: Sequence[str] = ()
    offered: Sequence[str] = ()
    #: enabled units that the package does not start, because they need configuration first
    not_yet: Sequence[str] = ()
    #: enabled units that an upgrade stops first, because they would start programs of the new release
    stopped: Sequence[str] = ()
    #: units that an upgrade restarts
    replaced: Sequence[str] = ()


def scripts(package: str, units: Units, words: Mapping[str, str]) -> dict[str, str]:
    """Return the scripts of a package.  ``words``: values of the placeholders ``@NAME@``."""
    cared = {"postinst": _begin(units), "prerm": _end(units), "postrm": _gone(units)}
    found: dict[str, str] = {}
    for name in _NAMES:
        path = _DIRECTORY / f"{package}.{name}"
        own = path.read_text() if path.exists() else _OF_UNITS
        if text := own.replace(_OF_UNITS, cared.get(name, "")):
            for word, meaning in words.items():
                text = text.replace(f"@{word}@", meaning)
            found[name] = _HEAD + text
    return found


def _begin(units: Units) -> str:
    lines = []
    for unit in units.enabled:
        lines += [
            f"    deb-systemd-helper unmask '{unit}' >/dev/null || true",
            f"    if deb-systemd-helper --quiet was-enabled '{unit}'; then",
            f"        deb-systemd-helper enable '{unit}' >/dev/null || true",
            "    else",
            f"        deb-systemd-helper update-state '{unit}' >/dev/null || true",
            "    fi",
        ]
    for unit in units.offered:
        lines += [
            f"    if deb-systemd-helper debian-installed '{unit}'; then",
            f"        deb-systemd-helper unmask '{unit}' >/dev/null || true",
            f"        deb-systemd-helper update-state '{unit}' >/dev/null || true",
            "    fi",
        ]
    at_first = [unit for unit in units.enabled if unit not in units.not_yet]
    running = ["        systemctl --system daemon-reload >/dev/null || true"]
    if at_first:
        running.append(f"        deb-systemd-invoke start {_quoted(at_first)} >/dev/null || true")
    if units.replaced:
        restart = f"            deb-systemd-invoke restart {_quoted(units.replaced)} >/dev/null 2>&1 || true"
        running += ['        if [ -n "$2" ]; then', restart, "        fi"]
    return _when('[ "$1" = configure ]', [*lines, *_if_systemd(running)])


def _end(units: Units) -> str:
    every = [*units.enabled, *units.offered]
    stop_all = f"        deb-systemd-invoke stop {_quoted(every)} >/dev/null || true"
    removal = _when('[ "$1" = remove ]', _if_systemd([stop_all]))
    if not units.stopped:
        return removal if every else ""
    stop = f"        deb-systemd-invoke stop {_quoted(units.stopped)} >/dev/null || true"
    return removal + _when('[ "$1" = upgrade ]', _if_systemd([stop]))


def _gone(units: Units) -> str:
    every = [*units.enabled, *units.offered]
    if not every:
        return ""
    links = " ".join(f"/etc/systemd/system/*.wants/{unit}" for unit in every)
    forget = [f"    deb-systemd-helper purge {_quoted(every)} >/dev/null || true", f"    rm -f {links}"]
    reload = _if_systemd(["        systemctl --system daemon-reload >/dev/null || true"])
    return _when('[ "$1" = remove ]', reload) + _when(
        '[ "$1" = purge ] && command -v deb-systemd-helper >/dev/null', forget
    )


def _if_systemd(lines: Sequence[str]) -> list[str]:
    return ["    if [ -d /run/systemd/system ]; then", *lines, "    fi"]


def _when(condition: str, lines: Sequence[str]) -> str:
    return "\n".join([f"if {condition}; then", *lines, "fi", ""])


def _quoted(units: Sequence[str]) -> str:
    return " ".join(f"'{unit}'" for unit in units)

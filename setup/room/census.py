"""What a room's servers hold: processes, sessions of PostgreSQL, locks, relations, files. For the search for leaks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from .layout import Room
from .load import query, shell

#: The programs of the server on one machine, without those of nodes.
_PROGRAMS = r"""
mine=$(readlink /proc/self/ns/pid)
for directory in /proc/[0-9]*; do
    [ "$(readlink $directory/ns/pid 2>/dev/null)" = "$mine" ] || continue
    tr '\0' ' ' <$directory/cmdline 2>/dev/null | grep -o ' -m oar\.modules\.[a-z_.]*' | sed 's/.*modules\.//'
done"""
_FILES = "find /run/oar /var/lib/oar /tmp -type f -o -type s | sed 's/[0-9][0-9]*/N/g'"
_SESSIONS = """
SELECT application_name FROM pg_stat_activity
WHERE backend_type = 'client backend' AND usename IN ('oar', 'oar_ro') AND application_name <> 'oar:commands'"""
_LOCKS = "SELECT 'advisory lock' FROM pg_locks WHERE locktype = 'advisory'"
_RELATIONS = """
SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname NOT IN ('fault_log', 'pg_toast', 'pg_catalog', 'information_schema')"""
#: Bipbips are started when jobs need them, and end when they have been idle.
_OF_POOL = ("process bipbip", "session oar:bipbip")
#: So much more is no leak: each server has its own files once it was active, and a pool may keep a second connection.
_TOLERANCE = 2


def programs(room: Room, server: str) -> list[str]:
    """Return the programs of OAR that run on a server, one entry for each process. Raises RoomError."""
    return shell(room, server, "root", _PROGRAMS).split()


def take(room: Room) -> Counter[str]:
    """Count what all servers hold, by kind. Raises RoomError."""
    counted: Counter[str] = Counter()
    for server in room.server_names:
        counted += _count("process", (name.rpartition(".")[2] for name in programs(room, server)))
        counted += _count("file", shell(room, server, "root", _FILES).splitlines())
    counted += _count("session", (_plain(row[0]) for row in query(room, _SESSIONS)))
    counted += _count("database", (row[0] for row in query(room, f"{_LOCKS} UNION ALL {_RELATIONS}")))
    return counted


def _count(kind: str, names: Iterable[str]) -> Counter[str]:
    return Counter(f"{kind} {name}" for name in names)


def _plain(session: str) -> str:
    """Return the name of a session without generation and host."""
    return re.sub(r" g\d+|@.*", "", session)


def grown(before: Counter[str], after: Counter[str]) -> list[str]:
    """Return what there is clearly more of than before, apart from the pool of bipbips."""
    names = [name for name, more in (after - before).items() if more > _TOLERANCE and name not in _OF_POOL]
    return [f"{name}: {before[name]} before, {after[name]} after" for name in sorted(names)]

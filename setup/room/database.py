"""PostgreSQL of a room: its own cluster of files, reached by its machines only."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from . import layout

#: Inside the room. The first is on this computer's disk, the second in memory.
_ON_DISK = layout.ROOM_DIR / "disk" / "postgresql"
_IN_MEMORY = Path("/run/postgresql-data")
LOG = "/var/log/postgresql.log"

_SAFE = """\
shared_buffers = 128MB
"""
#: Commits are still written before they are answered: a killed PostgreSQL loses nothing, a crashed computer would.
_FAST = """\
fsync = off
full_page_writes = off
shared_buffers = 64MB
"""
_COMMON = f"""\
listen_addresses = 'localhost,{layout.address(0)}'
unix_socket_directories = '/run/postgresql,/tmp'
max_connections = 300
idle_in_transaction_session_timeout = 60s
logging_collector = off
log_line_prefix = '%m [%p] %a '
"""
_ACCESS = f"""\
local all postgres peer map=room
local all all scram-sha-256
host oar oar,oar_ro 127.0.0.1/32 scram-sha-256
host oar oar,oar_ro {layout.NETWORK} scram-sha-256
"""
#: Who may be its administrator: whoever is postgres or root on this computer, also from outside of the room.
_NAMES = """\
room postgres postgres
room root postgres
"""


def binaries() -> Path:
    """The directory of initdb, pg_ctl and postgres on this computer."""
    candidates = [Path(os.environ["OAR_TEST_PG_BIN"])] if os.environ.get("OAR_TEST_PG_BIN") else []
    candidates += sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: _version(path.parent.name), reverse=True
    )
    if found := shutil.which("pg_ctl", path=layout.PATH):
        candidates.append(Path(found).resolve().parent)
    for candidate in candidates:
        if (candidate / "initdb").exists():
            return candidate
    raise layout.RoomError("PostgreSQL is missing: install the package postgresql")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def directory(*, fast: bool) -> Path:
    """Where the data are, inside the room."""
    return _IN_MEMORY if fast else _ON_DISK


def create_script(*, fast: bool) -> str:
    """Shell text for the account postgres: make the files and the configuration."""
    data = directory(fast=fast)
    settings = _COMMON + (_FAST if fast else _SAFE)
    return f"""\
set -e
{binaries()}/initdb -D {data} -U postgres -A trust --no-sync -E UTF8 --locale=C.UTF-8 >/dev/null
cat >> {data}/postgresql.conf <<'END'
{settings}END
cat > {data}/pg_hba.conf <<'END'
{_ACCESS}END
cat > {data}/pg_ident.conf <<'END'
{_NAMES}END
"""


def control_command(action: str, *, fast: bool) -> str:
    """Shell text for the account postgres: start, stop, or kill as a crash of the program would."""
    base = f"{binaries()}/pg_ctl -D {directory(fast=fast)} -s -w -t 60"
    if action == "start":
        return f"{base} -l {LOG} start </dev/null >/dev/null"
    if action == "stop":
        return f"{base} -m fast stop"
    return f"head -n 1 {directory(fast=fast)}/postmaster.pid | xargs kill -KILL"

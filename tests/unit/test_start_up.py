"""User commands start with little: what is heavy is loaded where it is used, never because a command begins."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent.parent
#: User commands, each with options as users write them.
COMMANDS = {
    "oarstat": ["-f", "-j", "1", "-J"],
    "oarnodes": ["-s", "-r", "1", "--json"],
    "oardel": ["-b", "-s", "INT", "1"],
    "oarhold": ["-r", "1"],
    "oarresume": ["1"],
    "oarwalltime": ["--whole", "1", "+1"],
    "oaralter": ["-n", "x", "1"],
    "qrdel": ["-f", "-u", "x", "1"],
    "qrsub": ["-a", "+1h", "-d", "60", "-l", "/nodes=1", "-u", "x"],
    "qralter": ["-e", "+1h", "1"],
    "qrstat": ["-u", "x", "-s", "w", "-explain", "-ar", "1", "-xml"],
    "oarsub": ["-l", "core=2,walltime=1", "-t", "besteffort", "-n", "x", "--array=2", "sleep 1"],
}
#: Each of these costs more than a command may take to start, or is not needed to answer.
FORBIDDEN = frozenset(
    [
        *("_ssl", "argparse", "ast", "asyncio", "concurrent", "ctypes", "dataclasses", "difflib", "dis", "email"),
        *("http", "importlib.metadata", "locale", "logging", "multiprocessing", "random", "socketserver"),
        *("subprocess", "tempfile", "tokenize", "unittest", "urllib", "xml"),
        *("alembic", "cryptography", "starlette", "jinja2", "paramiko", "rich", "sqlalchemy", "yaml", "zmq"),
    ]
)
#: What they load beside click, psycopg2, what these load themselves, and modules of ours.
OTHERS = {"_bisect", "bisect", "fnmatch", "gc", "importlib._abc", "importlib.util", "shlex", "signal"}
#: Modules of ours with their packages: each costs a fifth of a millisecond before it does anything.
MOST_OF_OURS = {
    "oarstat": 39,
    "oarnodes": 42,
    "oardel": 42,
    "oarhold": 40,
    "oarresume": 41,
    "oarwalltime": 45,
    "oaralter": 40,
    "oarsub": 48,
    "qrdel": 72,
    "qrstat": 47,
    "qrsub": 98,
    "qralter": 122,
}
_IMPORT = re.compile(r"^import time:[^|]*\|[^|]*\|\s*(\S+)$", re.MULTILINE)


def loaded_by(code: str) -> set[str]:
    """Return the modules, with their packages, that a bare Python loads for some code."""
    code = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); {code}"
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    names = _IMPORT.findall(done.stderr)
    return {".".join(name.split(".")[: depth + 1]) for name in names for depth in range(name.count(".") + 1)}


def loaded_to_start(command: str) -> set[str]:
    """Return the modules that a command has loaded when it has read its options."""
    parsed = f"load('oar.cli.{command}').make_context({command!r}, {COMMANDS[command]!r})"
    return loaded_by(f"from oar.cli.common.start_up import load; {parsed}")


@pytest.fixture(scope="module")
def libraries() -> set[str]:
    """What the libraries of user commands load."""
    return loaded_by("import click, psycopg2")


@pytest.fixture(scope="module")
def environment() -> set[str]:
    """What Python loads by itself; more, where our sources are installed to be edited (``pip install -e``)."""
    return loaded_by("")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_user_command_starts_without_what_is_heavy(command: str, libraries: set[str], environment: set[str]) -> None:
    loaded = loaded_to_start(command)
    ours = {name for name in loaded if name.partition(".")[0] == "oar"}
    assert {"click", "psycopg2"} <= loaded
    assert sorted(loaded & FORBIDDEN - environment) == []
    assert sorted(loaded - libraries - ours - OTHERS) == []
    assert len(ours) <= MOST_OF_OURS[command], sorted(ours)


def test_the_server_is_rung_without_tables_of_unicode() -> None:
    code = "from contextlib import suppress; from oar.lib.bus import doorbell"
    code += "; from oar.lib.base.errors import ServerUnavailable"
    ring = "with suppress(ServerUnavailable): doorbell.Doorbell('localhost', 1).ring()"
    loaded = loaded_by(f"exec({code!r}); exec({ring!r})")
    assert "socket" in loaded
    assert not {name for name in loaded if "idna" in name or "stringprep" in name or "unicodedata" in name}


def test_a_session_on_a_node_loads_only_what_its_programs_need_for_every_job() -> None:
    """Each fork of it, two for a job, copies the tables of its memory and the pages that it writes to."""
    from oar.lib.remote import bootstrap

    code = """
import json, sys, types
def load(name, text):
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, name, "exec"), module.__dict__)
for name, text in json.load(sys.stdin):
    load(name, text)
print(*sys.modules)
"""
    files = [bootstrap.SESSION, *bootstrap.PROGRAMS]
    programs = [(name.removesuffix(".py"), (bootstrap.TOOLS / name).read_text()) for name in files]
    started = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], input=json.dumps(programs), capture_output=True, text=True, check=True
    )
    heavy = {"hashlib", "_hashlib", "threading", "shutil", "bz2", "lzma", "typing", "traceback"}
    assert not (FORBIDDEN | heavy) & set(started.stdout.split())

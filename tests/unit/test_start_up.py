"""User commands start with little: what is heavy is loaded where it is used, never because a command begins."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent.parent
COMMANDS = ("oarstat", "oarnodes", "oardel", "oarhold", "oarresume", "oarwalltime", "oaralter", "oarsub")
#: Each of these costs more than a command may take to start, or is not needed to answer.
FORBIDDEN = frozenset(
    [
        *("_ssl", "argparse", "asyncio", "concurrent", "ctypes", "dataclasses", "difflib", "email", "http"),
        *(
            "importlib.metadata",
            "logging",
            "multiprocessing",
            "socketserver",
            "subprocess",
            "tempfile",
            "unittest",
            "urllib",
            "xml",
        ),
        *("alembic", "cryptography", "fastapi", "jinja2", "paramiko", "rich", "sqlalchemy", "yaml", "zmq"),
    ]
)
_IMPORT = re.compile(r"^import time:[^|]*\|[^|]*\|\s*(\S+)$", re.MULTILINE)


def loaded_by(code: str) -> set[str]:
    """Return the modules, with their packages, that a bare Python loads for some code."""
    code = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); {code}"
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    names = _IMPORT.findall(done.stderr)
    return {".".join(name.split(".")[:depth]) for name in names for depth in (1, 2)}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_user_command_starts_without_what_is_heavy(command: str) -> None:
    loaded = loaded_by(f"from oar.cli.{command} import main")
    assert {"click", "psycopg2"} <= loaded
    assert sorted(loaded & FORBIDDEN) == []

"""Start the session program on a node: one constant command, then the program on standard input.

The command never contains data of a job. It finds a Python interpreter (else exit code 32), becomes root once, reads
the length and the text of the session program, and runs it.
"""

import hashlib
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from oar.lib.remote.protocol import SessionOrder

TOOLS = Path(__file__).resolve().parents[2] / "tools"
SESSION = "node_session.py"
#: In the order in which they may import each other.
PROGRAMS = (
    "node_protocol.py",
    "node_base.py",
    "node_kernel.py",
    "node_cgroups.py",
    "node_enclosure.py",
    "node_devices.py",
    "node_keys.py",
    "node_leftovers.py",
    "node_scripts.py",
    "job_resource_manager_cgroups.py",
    "suspend_resume_manager.py",
    "node_probe.py",
    "site_script.py",
    "node_faults.py",
    "node_check.py",
    "node_gpus.py",
    "node_curves.py",
    "oarexec_command.py",
    "oarexec_end.py",
    "oarexec",
    "notification_command.py",
)
NO_INTERPRETER = 32
_NO_INTERPRETER_TEXT = "no python3 of version 3.6 or newer on this node (python3, platform-python, OAR_NODE_PYTHON)"
_READER = """import os,signal,sys
signal.signal(signal.SIGALRM,lambda *_:os._exit(30))
signal.alarm(30)
def line():
 b=b""
 while b[-1:]!=b"\\n":
  c=os.read(0,1)
  if not c:os._exit(30)
  b+=c
 return b
n=int(line())
b=b""
while len(b)<n:
 c=os.read(0,n-len(b))
 if not c:os._exit(30)
 b+=c
signal.alarm(0)
exec(compile(b,"<node_session>","exec"),{"__name__":"__main__"})
"""


@dataclass(frozen=True, slots=True)
class NodeProgram:
    """A node program: its name, the hash of its text, and the line that loads it into a session."""

    name: str
    hash: str
    load: bytes


def command(privilege: Sequence[str]) -> str:
    """Return the shell command that starts the session on a node. ``privilege``: the command to become root."""
    rights = "".join(shlex.quote(argument) + " " for argument in privilege)
    return (
        'for p in "$OAR_NODE_PYTHON" python3 /usr/libexec/platform-python; do '
        '[ -n "$p" ] && p=$(command -v "$p") && '
        '"$p" -I -S -c "import sys;sys.exit(sys.version_info<(3,6))" </dev/null 2>/dev/null && '
        f'exec {rights}"$p" -I -S -c {shlex.quote(_READER)}; done; '
        f"echo {shlex.quote(_NO_INTERPRETER_TEXT)} >&2; exit {NO_INTERPRETER}"
    )


@cache
def session_program() -> bytes:
    """Return the data for the channel: the length of the session program, then its text."""
    text = (TOOLS / SESSION).read_bytes()
    return b"%d\n%s" % (len(text), text)


@cache
def programs() -> dict[str, NodeProgram]:
    """Return every node program by name, in loading order."""
    node_programs = {}
    for file in PROGRAMS:
        source = (TOOLS / file).read_text(encoding="utf-8")
        name = file.removesuffix(".py")
        digest = hashlib.sha256(source.encode()).hexdigest()
        message = {"op": SessionOrder.LOAD, "name": name, "hash": digest, "source": source}
        node_programs[name] = NodeProgram(name, digest, json.dumps(message).encode() + b"\n")
    return node_programs

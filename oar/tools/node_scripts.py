"""Runs the programs of the site that root has on each node of a job: NODE_PROLOGUE_FILE and NODE_EPILOGUE_FILE.

See docs/design/nodes.rst, "Prologue and epilogue of nodes".
"""

import os
import pwd
import signal
import stat

import node_base
from node_base import JobFiles, NodeError
from node_protocol import ManagerExit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from node_base import Data

#: Bytes of the output of a program that its error message quotes.
QUOTED = 500


def run_prologue(data: "Data", files: JobFiles) -> None:
    """Run the prologue of the site, if there is one.  Raises NodeError if it fails."""
    run(data, files, "prologue", ManagerExit.PROLOGUE, [str(data["walltime_seconds"])])


def run_epilogue(data: "Data", files: JobFiles) -> None:
    """Run the epilogue of the site, if there is one.  Raises NodeError if it fails."""
    run(data, files, "epilogue", ManagerExit.EPILOGUE, [])


def run(data: "Data", files: JobFiles, name: str, code: int, arguments: "Sequence[str]") -> None:
    """Run a program of the site as root; raise NodeError with ``code`` if it fails.

    Only one program of a job runs at a time on a node: one whose server was restarted goes on.
    """
    options = node_base.options_of(data)
    path = options.get(name)
    if not path:
        return
    argv = [path, str(data["job_id"]), data["user"], files.nodes, *arguments]
    seconds: int = options["script_seconds"]
    lock = node_base.take_lock(files.scripts, code, seconds + 5)
    try:
        require_safe(path)
        execute(argv, variables(data, files), seconds)
    except ScriptError as error:
        raise NodeError(code, "%s %s: %s" % (name, path, error)) from None
    except OSError as error:
        raise NodeError(code, "%s %s: it cannot be executed: %s" % (name, path, error.strerror)) from None
    finally:
        os.close(lock)


class ScriptError(Exception):
    """Why a program of the site was not run, or failed."""


def require_safe(path: str) -> None:
    """Raise ScriptError if somebody else than root can replace or change a program."""
    real = os.path.realpath(path)
    if real != path:
        raise ScriptError("it must be named without symbolic links: %s" % real)
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ScriptError("it must be a file")
    while True:
        status = os.stat(real)
        if status.st_uid != 0 or status.st_mode & 0o022:
            raise ScriptError("%s must belong to root, and only root may write to it" % real)
        if real == "/":
            return
        real = os.path.dirname(real)


def execute(argv: "Sequence[str]", environment: "dict[str, str]", seconds: int) -> None:
    """Run a program in a session of its own, which is killed after ``seconds``.  Raises ScriptError, OSError."""
    import subprocess
    import tempfile

    encoded = {node_base.encode(name): node_base.encode(value) for name, value in environment.items()}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=encoded,
            start_new_session=True,
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise ScriptError("it did not end within %d s" % seconds) from None
        if status:
            output.seek(max(0, output.seek(0, os.SEEK_END) - QUOTED))
            said = node_base.escaped(" ".join(output.read().decode("utf-8", "replace").split()))
            raise ScriptError("it ended with exit code %d%s" % (status, said and ": " + said))


def variables(data: "Data", files: JobFiles) -> "dict[str, str]":
    """Return the environment of a program: that of the job, as far as the system made it, and root's."""
    content = node_base.read_file(files.environment(data["user"])) or b""
    of_job = node_base.exported(content.decode("utf-8", "surrogateescape").split("\n"))
    root = pwd.getpwuid(0)
    return dict(
        of_job,
        OAR_JOB_ID=str(data["job_id"]),
        OAR_USER=data["user"],
        HOME=root.pw_dir,
        USER=root.pw_name,
        LOGNAME=root.pw_name,
        SHELL="/bin/sh",
        PATH=node_base.DEFAULT_PATH,
    )

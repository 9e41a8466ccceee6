"""Results of jobs of desktop computers: unpack them as their users, remove them when they are old.

See docs/design/desktop.rst, "Results".
"""

import os
import pwd
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import oar
from oar.lib.access.records import User
from oar.lib.desktop import stageouts
from oar.lib.desktop.orders import UNPACKED_TIMES
from oar.lib.logs import of_job
from oar.lib.submission import staging
from oar.lib.user_files.files import UserFiles
from oar.modules.runner.actions.context import ActionContext, log
from oar.modules.runner.actions.job_data import JobData

#: Seconds after which an unpacking is given up; the program itself has a limit of processor time below.
SECONDS = 300.0
#: Unpackings at a time in a process, of all users and of one: who lets his hang holds up no others' launches and ends.
MOST_AT_ONCE, MOST_OF_A_USER = 4, 2
#: Where the program is whose text goes to the user's process: the user may not read our files.
_PROGRAM = Path(oar.__file__).parent / "tools" / "agent_archives.py"
#: Exit code of the program: there is no such directory here.
_NO_DIRECTORY = 3
#: Bytes of what the program says.
_LONGEST_TEXT = 500
_LONGEST_SAID = 1 << 16


class Crowded(Exception):
    """Too many results are being unpacked: try again later."""


class Unpackings:
    """The unpackings that run in this process."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._of_users: Counter[str] = Counter()
        self._left: list[subprocess.Popen[bytes]] = []

    @contextmanager
    def one_more(self, user: str) -> Iterator[None]:
        """Count one unpacking of a user while the block runs. Raises Crowded."""
        with self._mutex:
            if self._of_users[user] >= MOST_OF_A_USER or self._of_users.total() >= MOST_AT_ONCE:
                raise Crowded
            self._of_users[user] += 1
        try:
            yield
        finally:
            with self._mutex:
                self._of_users[user] -= 1

    def leave(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill a program, and do not wait for its end."""
        with suppress(PermissionError):
            process.kill()
        with self._mutex:
            self._left.append(process)

    def left(self) -> int:
        """Return the number of abandoned programs that still run."""
        with self._mutex:
            self._left = [process for process in self._left if process.poll() is None]
            return len(self._left)


unpackings = Unpackings()


def deliver(context: ActionContext, data: JobData) -> str:
    """Unpack the results of a job into its launching directory, if both exist on this machine.

    Return the reason if some results are missing there, else ''. Users can fetch the missing results. Raises Crowded.
    """
    path = stageouts.path_of(context.config, data.job.id)
    try:
        account = pwd.getpwnam(data.job.user)
        with open(path, "rb") as archive, unpackings.one_more(account.pw_name):
            code, text = _unpack(context, data, User(account.pw_name, account.pw_uid), archive.fileno())
    except FileNotFoundError:
        return ""
    except KeyError:
        return ""  # the user has no account here: he can fetch the results
    except OSError as error:
        return f"the results were not unpacked: {error}"
    if code == 0:
        stageouts.remove(context.config, data.job.id)
        return ""
    of_job(log, data.job.id).info("results: %s", text)
    return "" if code == _NO_DIRECTORY else f"the results were not all unpacked: {text or f'exit code {code}'}"


def _unpack(context: ActionContext, data: JobData, user: User, archive: int) -> tuple[int, str]:
    """Unpack an archive as the user. Return the exit code of the program and its output. Raises OSError."""
    most = context.config.api_max_upload * UNPACKED_TIMES
    program = [sys.executable, "-I", "-S", "-c", _PROGRAM.read_text(), data.job.launching_directory, str(most)]
    words, identity = UserFiles(user, context.config.oar_privilege_cmd).running(program)
    process = subprocess.Popen(
        words,
        stdin=archive,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
        **identity,
    )
    return _ended(process)


def _ended(process: "subprocess.Popen[bytes]") -> tuple[int, str]:
    """Return the exit code of a program and the last line of its output. Raises TimeoutError.

    The program belongs to its user, who may stop it or let it write without end. So the wait and the stored output are
    limited. A program that runs under sudo cannot be killed; it is abandoned.
    """
    assert process.stdout
    said, until, poll = b"", time.monotonic() + SECONDS, select.poll()
    with process.stdout as source:
        poll.register(source, select.POLLIN)
        while poll.poll(1000 * max(0.0, until - time.monotonic())):
            piece = os.read(source.fileno(), _LONGEST_SAID)
            said = (said + piece)[-_LONGEST_SAID:]
            if not piece or time.monotonic() > until:
                break
    try:
        code = process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        unpackings.leave(process)
        raise TimeoutError(f"this was not done in {SECONDS:.0f} seconds") from None
    lines = said.decode(errors="replace").strip().splitlines()
    text = lines[-1][:_LONGEST_TEXT] if lines else ""
    return code, "".join(letter if letter.isprintable() else "?" for letter in text)


def remove_old(context: ActionContext) -> None:
    """Remove the obsolete files of desktop computing."""
    unpackings.left()
    count = stageouts.remove_old(context.database, context.config)
    if count:
        log.info("%d old files of results are removed", count)
    staging.remove_unused(context.database, context.config)

"""Jobs on a desktop computer: their files, their processes, their ends.

A part of ``oar-agent``.  Python >= 3.6, standard library only.  See docs/design/desktop.rst, "Jobs on the computer".
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple

from agent_archives import BLOCK, BadArchive, Unpacking, files_in, pack, pour
from agent_server import AgentError, OarSilent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import IO, Any

    from agent_server import OarServer

#: Where the agent keeps what is its own: a directory for each job, and its lock.
OWN = ".oar-agent"
#: Seconds between SIGTERM and SIGKILL; between two attempts to reach the server for a job.
KILL_SECONDS, RETRY_SECONDS = 5.0, 5.0
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
SUM = re.compile(r"[0-9a-f]{32}\Z")
#: The variable by which the processes of a job are known.
MARK = "OAR_AGENT_JOB"
#: Why a job ended, as the server reads it.
NOT_STARTED, LOST, KILLED, WALLTIME, QUIT = "not started", "lost", "killed", "walltime", "quit"
NO_RESULTS = "no results"
STAGING, RUNNING, ENDED = "staging", "running", "ended"


#: What jobs have of their agent: the server, the files that are kept, seconds between two attempts, and functions: the
#: next question comes at once; whether no time is left for the server; wait a moment; tell what is done.
Host = namedtuple("Host", "server stageins interval ring is_cut_off pause tell")


class NotStarted(Exception):
    """The command of a job is not started; why."""


def log(text: str) -> None:
    """Write a line for the administrator of this computer."""
    line = "%s oar-agent: %s\n" % (time.strftime("%Y-%m-%d %H:%M:%S"), text)
    sys.stderr.write("".join(c if c.isprintable() or c == "\n" else "?" for c in line))
    sys.stderr.flush()


class Stageins:
    """The files that were fetched for jobs, by their sums."""

    def __init__(self, directory: str, seconds: int) -> None:
        self._directory, self._seconds = os.path.abspath(directory), seconds
        os.makedirs(self._directory, mode=0o700, exist_ok=True)

    @contextlib.contextmanager
    def file(self, server: "OarServer", job_id: int, staged: "Mapping[str, Any]") -> "Iterator[IO[bytes]]":
        """Open the file of a job, fetched if it is not there; raise NotStarted, OarSilent, OSError."""
        md5sum, size = str(staged["md5sum"]), int(staged["size"])
        if not SUM.match(md5sum):
            raise NotStarted("the server sent no checksum of its file")
        path = os.path.join(self._directory, md5sum)
        with self._locked(path):
            if not self._is_whole(path, md5sum):
                with open(path + ".part", "wb") as part:
                    server.fetch(job_id, part, size)
                if not self._is_whole(path + ".part", md5sum):
                    raise NotStarted("the checksum of the fetched file is wrong")
                os.rename(path + ".part", path)
            os.utime(path)
            with open(path, "rb") as file:
                yield file

    def _is_whole(self, path: str, md5sum: str) -> bool:
        digest = hashlib.new("md5")
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            for block in iter(lambda: file.read(BLOCK), b""):
                digest.update(block)
            return digest.hexdigest() == md5sum
        return False

    def forget(self) -> None:
        """Remove the files that no job has used for long."""
        for name in os.listdir(self._directory):
            path = os.path.join(self._directory, name)
            with contextlib.suppress(OSError):
                if SUM.match(name.partition(".")[0]) and os.stat(path).st_mtime < time.time() - self._seconds:
                    with self._locked(path, fcntl.LOCK_NB):
                        os.unlink(path)

    @contextlib.contextmanager
    def _locked(self, path: str, how: int = 0) -> "Iterator[None]":
        """Lock a file that is kept, and what belongs to it; raise OSError."""
        lock_path = os.path.join(self._directory, os.path.basename(path).partition(".")[0] + ".lock")
        is_held = False
        while not is_held:
            with open(lock_path, "wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | how)
                is_held = _is_at(lock_path, lock.fileno())  # the lock of who forgot the file is gone with it
                if is_held:
                    yield


def _is_at(path: str, descriptor: int) -> bool:
    """Whether an open file is still the one that a path leads to."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


class LocalJob(threading.Thread):
    """A job on this computer, from its fetching to the acknowledgement of its end."""

    def __init__(self, host: Host, job_id: int, order: "Mapping[str, Any]") -> None:
        threading.Thread.__init__(self, name="job %d" % job_id, daemon=True)
        self.id, self.state = job_id, STAGING
        self.status: "int | None" = None
        self.reason = ""
        self._host, self._order = host, order
        self._ask = threading.Event()  # something has happened to it
        self._wanted = ""  # why it is to end
        self.directory = os.path.abspath(str(job_id))
        self.own = os.path.abspath(os.path.join(OWN, str(job_id)))

    @property
    def record(self) -> "dict[str, Any]":
        """What the server is told."""
        return {"state": self.state, "status": self.status, "reason": self.reason}

    def end(self, reason: str) -> None:
        """Let the job end; the first reason counts."""
        self._wanted = self._wanted or reason
        self._ask.set()

    def run(self) -> None:
        """Do all that is to be done, in a thread."""
        try:
            self._begin()
        except NotStarted as error:
            self.reason = self._wanted or "%s: %s" % (NOT_STARTED, error)
        except Exception as error:  # noqa: BLE001 - a thread that dies would leave the job for ever
            self.reason = self._wanted or "%s: %s" % (NOT_STARTED if self.state == STAGING else LOST, error)
        self._finish()

    def _begin(self) -> None:
        """Prepare the directory, run the command, wait for its end."""
        self._host.tell("job %d begins" % self.id)
        os.makedirs(self.own, mode=0o700)
        try:
            os.mkdir(self.directory, 0o755)
        except OSError as error:
            raise NotStarted("%s: %s" % (self.directory, error.strerror)) from None
        self._stage_in()
        if self._wanted:
            raise NotStarted(self._wanted)
        self._write("unpacked", json.dumps(files_in(self.directory)))
        process = self._start()
        self.state = RUNNING
        self._host.ring()
        threading.Thread(target=self._watch, args=(process,), daemon=True).start()
        self._wait(process)
        code = process.returncode
        self.status = -code if code < 0 else code << 8

    def _stage_in(self) -> None:
        """Fetch the file of the job, and unpack it; raise NotStarted."""
        staged = self._order.get("stagein")
        while staged and not self._wanted:
            try:
                with self._host.stageins.file(self._host.server, self.id, staged) as file:
                    self._unpack(file, str(staged.get("kind") or ""))
                return
            except OarSilent as error:
                log("job %d: %s" % (self.id, error))
                self._ask.wait(min(30, self._host.interval))
            except (OSError, AgentError, BadArchive) as error:
                raise NotStarted(str(error)) from None

    def _unpack(self, file: "IO[bytes]", kind: str) -> None:
        """Unpack the file of the job; what is no archive is copied."""
        free = shutil.disk_usage(self.directory).free
        most = min(int(self._order.get("unpacked_size") or free), free * 9 // 10)
        if not kind:
            with open(os.path.join(self.directory, "stagein"), "wb") as copy:
                pour(file, copy, most)
            return
        place = Unpacking(self.directory)
        try:
            place.unpack(file, kind, most)
        finally:
            place.close()

    def _start(self) -> "subprocess.Popen[bytes]":
        """Start the command in a session of its own."""
        outputs = [self._output(str(self._order.get(key) or "")) for key in ("stdout_file", "stderr_file")]
        try:
            return subprocess.Popen(
                ["/bin/sh", "-c", str(self._order["command"])],
                stdin=subprocess.DEVNULL,
                stdout=outputs[0],
                stderr=outputs[1],
                cwd=self.directory,
                env=self._environment(),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise NotStarted("the command cannot be executed: %s" % error) from None
        finally:
            for output in outputs:
                os.close(output)

    def _output(self, name: str) -> int:
        """Open an output file below the directory of the job, whatever its name says."""
        words = [word for word in name.split("/") if word not in ("", ".", "..")] or ["OAR.%d.out" % self.id]
        words = words[-1:] if name.startswith("/") else words
        path = os.path.join(self.directory, *words)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise NotStarted("%s: %s" % (name, error.strerror)) from None

    def _environment(self) -> "dict[str, str]":
        """Return the variables of the command."""
        nodes = self._write("nodes", "".join("%s\n" % name for name in self._order.get("nodes") or ()))
        kept = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TMPDIR")
        variables = {name: os.environ[name] for name in kept if name in os.environ}
        given = self._order.get("environment") or {}
        variables.update({str(name): str(value) for name, value in given.items() if NAME.match(str(name))})
        for names, value in (
            ("OAR_WORKDIR OAR_WORKING_DIRECTORY OAR_O_WORKDIR PWD", self.directory),
            ("OAR_NODEFILE OAR_NODE_FILE OAR_FILE_NODES OAR_RESOURCE_FILE", nodes),
        ):
            variables.update(dict.fromkeys(names.split(), value))
        variables["OAR_STDOUT"] = str(self._order.get("stdout_file") or "")
        variables["OAR_STDERR"] = str(self._order.get("stderr_file") or "")
        if self._order.get("script") is not None:
            variables["OAR_SCRIPT"] = self._write("script", str(self._order["script"]))
        variables[MARK] = self._write("mark", "%d.%s" % (self.id, os.urandom(8).hex()), is_path=False)
        return variables

    def _write(self, name: str, text: str, *, is_path: bool = True) -> str:
        """Write a file of the agent's own about the job; return its path, or the text."""
        path = os.path.join(self.own, name)
        with open(path + ".new", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(path + ".new", 0o700)
        os.rename(path + ".new", path)
        return path if is_path else text

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        """Tell when the command has ended."""
        process.wait()
        self._ask.set()

    def _wait(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait for the end of the command; end it when it is asked, or its walltime is over."""
        deadline = time.monotonic() + max(1, int(self._order.get("walltime") or 1))
        while process.poll() is None and not self._wanted:
            self._ask.wait(max(0.0, deadline - time.monotonic()))
            self._ask.clear()
            if process.poll() is None and time.monotonic() >= deadline:
                self.end(WALLTIME)
        if process.poll() is None:
            signal_session(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(KILL_SECONDS)
            self.reason = self._wanted
        signal_session(process.pid, signal.SIGKILL)
        process.wait()

    def _finish(self) -> None:
        """Send the results; then the end may be told."""
        with contextlib.suppress(OSError):
            kill_marked(self.own)
            self._write("end", json.dumps([self.status, self.reason]))
        self._send_results()
        self._host.tell("job %d ended: status %s %s" % (self.id, self.status, self.reason))
        self.state = ENDED
        self._host.ring()

    def _send_results(self) -> None:
        """Pack what is new, and send it for as long as there is time."""
        path = os.path.join(self.own, "results.tgz")
        try:
            with open(os.path.join(self.own, "unpacked"), encoding="utf-8", errors="surrogateescape") as file:
                before = {name: tuple(known) for name, known in json.load(file).items()}
            for text in pack(self.directory, before, path):
                log("job %d: left out of the results: %s" % (self.id, text))
        except FileNotFoundError:
            return  # its command was not started
        except (OSError, ValueError) as error:
            self.reason = self.reason or "%s: %s" % (NO_RESULTS, error)
            return
        while not self._host.is_cut_off():
            try:
                self._host.server.send(self.id, path)
                return
            except OarSilent as error:
                log("job %d: the results are not sent yet: %s" % (self.id, error))
                self._host.pause()
            except AgentError as error:
                self.reason = self.reason or "%s: %s" % (NO_RESULTS, error)
                return

    def resume(self) -> None:
        """Go on with a job that an agent before this one has left."""
        kill_marked(self.own)
        try:
            with open(os.path.join(self.own, "end"), encoding="utf-8") as file:
                self.status, self.reason = json.load(file)
        except (OSError, ValueError, TypeError):
            self.reason = "%s: the agent ended while it ran" % LOST
            self.state = ENDED
            return
        self.state = RUNNING
        threading.Thread(target=self._finish, daemon=True).start()

    def forget(self) -> None:
        """Remove what is left of it: the server knows its end."""
        for path in (self.directory, self.own):
            shutil.rmtree(path, onerror=make_removable)


def make_removable(function: "Any", path: str, _: "Any") -> None:
    """Remove what a directory without rights has kept from being removed."""
    with contextlib.suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)
        if not os.path.isdir(path) or os.path.islink(path):  # a link leads to what is not the job's
            function(path)
            return
        os.chmod(path, 0o700)
        shutil.rmtree(path, ignore_errors=True)


def signal_session(leader: int, number: int) -> None:
    """Send a signal to all processes of a session, and to the group of its leader."""
    with contextlib.suppress(OSError):
        os.killpg(leader, number)
    for pid in processes():
        with contextlib.suppress(OSError):
            if pid != leader and os.getsid(pid) == leader:
                os.kill(pid, number)


def kill_marked(own: str) -> None:
    """Kill all processes that a job has left, in whatever session they are."""
    try:
        with open(os.path.join(own, "mark"), encoding="utf-8") as file:
            mark = ("%s=%s" % (MARK, file.read())).encode()
    except OSError:
        return
    for pid in processes():
        with contextlib.suppress(OSError), open("/proc/%d/environ" % pid, "rb") as file:
            if mark in file.read().split(b"\0"):
                os.kill(pid, signal.SIGKILL)


def processes() -> "list[int]":
    """Return the processes of this computer, if it tells."""
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return []

"""oar-agent: lets this computer work for OAR although the server cannot reach it; it asks the server over HTTPS.

It runs as an ordinary account, which its jobs have, too: give it one of its own.  What the server says is done; what
comes in archives is checked.  Installed, it is one file, made of this one and of the modules ``agent_*`` beside it.

Python >= 3.6, standard library only.  See docs/design/desktop.rst.
"""

import contextlib
import fcntl
import getopt
import os
import pwd
import re
import select
import signal
import socket
import sys
import time
import urllib.parse
from collections import namedtuple

from agent_archives import BLOCK
from agent_jobs import ENDED, KILLED, OWN, QUIT, Host, LocalJob, Stageins, log
from agent_server import BAD_USAGE, AgentError, OarServer, OarSilent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

USAGE = """Usage: oar-agent [options] URL...
Ask the OAR server at URL for jobs, and run them in the current directory.
Of several servers, the next one is asked if one does not answer.

  -n, --name NAME        name of this computer in OAR (default: its host name)
  -i, --interval SECONDS longest time between two requests (default: 30)
  -d, --directory DIR    where files of jobs are kept for the next one (default: ./stageins)
  -t, --cache SECONDS    how long they are kept (default: 300)
  -p, --pidfile FILE     write the process id there
  -k, --token FILE       file with the token of this computer (default: ~/.oar-agent.token)
  -v, --verbose          print each step
  -h, --help             this help

It ends with 0 after a signal, 1 if it cannot start, 2 if the server refuses it.
"""
#: Signals that let the agent end.
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
IDENTITY = re.compile(r"[0-9a-f]{32}\Z")
#: Seconds for the last questions of an agent that ends.
LAST_SECONDS = 60.0

Settings = namedtuple("Settings", "name interval directory cache pidfile token verbose urls")


class Agent:
    """Asks the server, starts jobs, lets them end."""

    def __init__(self, settings: Settings, token: str) -> None:
        self._settings = settings
        self._identity = identity()
        self._server = OarServer(settings.urls, settings.name, token)
        self._stageins = Stageins(settings.directory, settings.cache)
        self._host = Host(
            self._server, self._stageins, settings.interval, self.ring, self.is_cut_off, self.pause, self.tell
        )
        self._jobs: "dict[int, LocalJob]" = {}
        self._bell, self._rope = os.pipe()
        for descriptor in (self._bell, self._rope):
            os.set_blocking(descriptor, False)
        self._ending: "float | None" = None  # when it was told to end

    def tell(self, text: str) -> None:
        """Write what is done, if that is wanted."""
        if self._settings.verbose:
            log(text)

    def ring(self) -> None:
        """Let the next question come at once."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._rope, b"x")

    def stop(self, *_: "Any") -> None:
        """Let the agent end."""
        self._ending = self._ending or time.monotonic()
        self.ring()

    def is_cut_off(self) -> bool:
        """Whether there is no more time to reach the server."""
        return self._ending is not None and time.monotonic() > self._ending + LAST_SECONDS

    def pause(self) -> None:
        """Wait a moment before something is tried again."""
        time.sleep(1.0 if self._ending else min(5.0, float(self._settings.interval)))

    def _sleep(self, seconds: float) -> None:
        select.select([self._bell], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._bell, BLOCK):
                pass

    def take_over(self) -> None:
        """Go on with the jobs that an agent before this one has left in this directory."""
        for name in os.listdir(OWN):
            if name.isdigit():
                job = self._jobs[int(name)] = LocalJob(self._host, int(name), {})
                job.resume()

    def run(self) -> None:
        """Work until told to end; raise AgentError when the server refuses it."""
        failures = 0
        while self._ending is None:
            try:
                pause = self._pull()
                failures = 0
            except OarSilent as error:
                log(str(error))
                failures += 1
                pause = min(2.0 ** min(failures, 10), self._settings.interval)
            except AgentError:
                self._end_all()
                raise
            self._stageins.forget()
            self._sleep(pause)
        self._end_all()
        while not self.is_cut_off():
            try:
                self._pull(quits=True)
                return
            except OarSilent as error:
                log(str(error))
                self.pause()

    def _pull(self, *, quits: bool = False) -> float:
        """Ask the server once; return the seconds until the next question."""
        told = {job_id: job.record for job_id, job in self._jobs.items()}
        answer = self._server.ask("PULL", agent=self._identity, quit=quits, jobs=told)
        for job_id, record in told.items():
            if record["state"] == ENDED:  # now the server knows
                self._jobs.pop(job_id).forget()
        try:
            for text in answer["kill"]:
                if int(text) in self._jobs:
                    self._jobs[int(text)].end(KILLED)
            for text, order in answer["launch"].items():
                self._launch(int(text), order)
            return max(0.1, min(float(answer["next"]), float(self._settings.interval)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OarSilent("the answer is not understood: %s" % error) from None

    def _launch(self, job_id: int, order: "Mapping[str, Any]") -> None:
        """Start a job, unless it is here already."""
        if job_id > 0 and job_id not in self._jobs and self._ending is None:
            job = self._jobs[job_id] = LocalJob(self._host, job_id, order)
            job.start()

    def _end_all(self) -> None:
        self._ending = self._ending or time.monotonic()
        for job in self._jobs.values():
            job.end(QUIT)
        while any(job.state != ENDED for job in self._jobs.values()) and not self.is_cut_off():
            self._sleep(1.0)


# -- the program -------------------------------------------------------------------------------------------------------


def read_options(arguments: "Sequence[str]") -> "Settings | None":
    """Return the options, None if help is asked; raise AgentError."""
    long = ["name=", "interval=", "directory=", "cache=", "pidfile=", "token=", "verbose", "help"]
    try:
        pairs, words = getopt.gnu_getopt(arguments, "n:i:d:t:p:k:vh", long)
    except getopt.GetoptError as error:
        raise AgentError(BAD_USAGE, str(error)) from None
    given = {option.lstrip("-")[0]: value for option, value in pairs if not option.startswith("--")}
    letters = {"cache": "t", "token": "k"}
    given.update({letters.get(name[2:], name[2]): value for name, value in pairs if name.startswith("--")})
    if "h" in given:
        return None
    if not words:
        raise AgentError(BAD_USAGE, "the address of the server is needed, see oar-agent --help")
    return Settings(
        name=given.get("n") or socket.gethostname(),
        interval=seconds_of("-i", given.get("i", "30"), 1),
        directory=given.get("d") or "stageins",
        cache=seconds_of("-t", given.get("t", "300"), 0),
        pidfile=given.get("p"),
        token=given.get("k") or os.path.join(pwd.getpwuid(os.geteuid()).pw_dir, ".oar-agent.token"),
        verbose="v" in given,
        urls=[address_of(word) for word in words],
    )


def seconds_of(option: str, text: str, least: int) -> int:
    if not (text.isdigit() and least <= int(text) <= 86400):
        raise AgentError(BAD_USAGE, "%s: %r must be a number of seconds from %d to 86400" % (option, text, least))
    return int(text)


def address_of(text: str) -> str:
    """Return the address of the server; raise AgentError.  A token is sent encrypted, or stays on this computer."""
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise AgentError(BAD_USAGE, "%r is not an address: use https://SERVER/" % text)
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise AgentError(BAD_USAGE, "%s: the token must be sent encrypted: use an address with https" % text)
    return text if parts.path.strip("/") else text.rstrip("/") + "/oar-cgi"


def read_token(path: str) -> str:
    """Return the token of this computer; raise AgentError."""
    try:
        with open(path, encoding="ascii") as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.read(1000).strip()
    except (OSError, ValueError) as error:
        raise AgentError(BAD_USAGE, "%s: %s" % (path, getattr(error, "strerror", error))) from None
    if mode & 0o077:
        raise AgentError(BAD_USAGE, "%s: others may read it: chmod 600 %s" % (path, path))
    if not re.match(r"[\x21-\x7e]+\Z", token):
        raise AgentError(BAD_USAGE, "%s holds no token" % path)
    return token


@contextlib.contextmanager
def being_alone(settings: Settings) -> "Iterator[None]":
    """Hold the lock of the directory, and have the pid file; raise AgentError."""
    try:
        os.makedirs(OWN, mode=0o700, exist_ok=True)
        with open(os.path.join(OWN, "lock"), "wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AgentError(BAD_USAGE, "another agent works in this directory") from None
            if settings.pidfile:
                with open(settings.pidfile, "w", encoding="ascii") as file:
                    file.write("%d\n" % os.getpid())
            try:
                yield
            finally:
                if settings.pidfile:
                    with contextlib.suppress(OSError):
                        os.unlink(settings.pidfile)
    except OSError as error:
        raise AgentError(BAD_USAGE, "%s: %s" % (error.filename or "the directory", error.strerror)) from None


def identity() -> str:
    """Return the name of this directory, made when it has none: the server tells agents of one name apart by it."""
    path = os.path.join(OWN, "identity")
    with contextlib.suppress(OSError, ValueError):
        with open(path, encoding="ascii") as file:
            text = file.read(65)
        if IDENTITY.match(text):
            return text
    text = os.urandom(16).hex()
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(text)
    os.replace(path + ".new", path)
    return text


def work(settings: Settings) -> None:
    """Be an agent until a signal comes; raise AgentError."""
    if os.geteuid() == 0:
        raise AgentError(BAD_USAGE, "jobs would run as root: start it as an ordinary account")
    token = read_token(settings.token)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)  # who sees our files may send one before an agent can hear it
    with being_alone(settings):
        agent = Agent(settings, token)
        for number in ENDS:
            signal.signal(number, agent.stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
        agent.take_over()
        agent.run()


def main(arguments: "list[str]") -> int:
    """Run as a program; return the exit code."""
    try:
        settings = read_options(arguments)
        if settings is None:
            sys.stdout.write(USAGE)
            return 0
        work(settings)
    except AgentError as error:
        sys.stderr.write("oar-agent: %s\n" % error)
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

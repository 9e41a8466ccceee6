#!/usr/bin/env python3
"""Starts the program of a job that was submitted with ``oarsub --app``.  It runs in the job, as its user.

The submission stores this text as the script of the job and adds the definition of the program at its end
(oar/lib/apps/launcher.py).  The token is created here and is never in the definition, the command or the output of the
job.  Only files of the user contain it, with mode 600.

See docs/design/nodes.rst, "Programs with web pages".
"""

import contextlib
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import IO, Any, NoReturn

    Definition = dict[str, Any]

#: Exit codes: the program did not start; it is not installed, as a shell reports it.
FAILED, NOT_FOUND = 1, 127
#: Ports that are tried, and times that the program is started if another process takes its port meanwhile.
PORTS_TRIED, STARTS = 100, 3
#: Seconds between two looks at the port; seconds that the program gets to end.
LOOK, GRACE = 0.1, 10
#: Days after which a session file of a job that was killed is deleted; seconds after which a job writes its own again.
STALE_DAYS, REFRESH = 30, 86400.0
#: Bytes of a line of the program's output that is searched for the token as a whole.
LONGEST_LINE = 1 << 16
LISTENING = "0A"
PLACEHOLDER = re.compile(r"\{(address|port|prefix|token|directory|user|job)\}")


class LaunchError(Exception):
    """The program cannot be started, or has ended too early."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        Exception.__init__(self, text)
        self.code = code


class PortTaken(Exception):
    """Another user's process listens on the port that was chosen."""


class AppJob:
    """The program of one job: its definition, and the values of this run."""

    def __init__(self, definition: "Definition") -> None:
        self.definition = definition
        self.account = pwd.getpwuid(os.getuid())
        self.job_id = int(os.environ["OAR_JOB_ID"])
        self.family = address_family()
        self.token = secrets.token_hex(32)
        self.prefix = "/jobs/%d" % self.job_id
        self.directory = tempfile.mkdtemp(prefix="oar-app-")
        self.port = 0
        self.session_file = ""

    def values(self) -> "dict[str, str]":
        """Return the values of the placeholders."""
        return {
            "address": "0.0.0.0" if self.family == socket.AF_INET else "::",
            "port": str(self.port),
            "prefix": self.prefix,
            "token": self.token,
            "directory": self.directory,
            "user": self.account.pw_name,
            "job": str(self.job_id),
        }

    def filled(self, text: str) -> str:
        """Return a text of the definition with the values of its placeholders."""
        values = self.values()
        return PLACEHOLDER.sub(lambda match: values[match.group(1)], text)

    def run(self) -> int:
        """Run the program until it ends; return the exit code of the job."""
        try:
            for _ in range(STARTS):
                self.port = free_port(self.family, *self.definition["ports"])
                with contextlib.suppress(PortTaken):
                    return self.run_once()
            raise LaunchError("other processes take the ports of %s" % self.definition["name"])
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def run_once(self) -> int:
        """Run the program on the chosen port; return its exit code.  Raises LaunchError, PortTaken."""
        self.write_files()
        process = subprocess.Popen(
            self.command(),
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdout
        copier = threading.Thread(target=copy_without, args=(process.stdout, self.token), daemon=True)
        copier.start()
        is_over = threading.Event()
        keeper = threading.Thread(target=self.keep_session, args=(is_over,), daemon=True)
        try:
            self.await_listening(process)
            self.write_session()
            keeper.start()
            write_all(b"%s is ready on port %d.\n" % (self.definition["name"].encode("ascii"), self.port))
            code = process.wait()
            return code if code >= 0 else 128 - code
        finally:
            is_over.set()
            if keeper.ident:
                keeper.join()
            self.remove_session()
            end(process)
            copier.join(1)

    def command(self) -> "list[str]":
        """Return the words to execute.  A login shell runs the lines of the site first, if there are any."""
        words = [self.filled(word) for word in self.definition["command"]]
        before = self.definition["before"]
        if not before:
            return words if shutil.which(words[0]) else missing(words[0])
        return ["bash", "-l", "-c", self.filled(before) + '\nexec "$@"', "bash", *words]

    def environment(self) -> "dict[str, str]":
        """Return the environment of the program."""
        own = {name: self.filled(text) for name, text in self.definition["environment"].items()}
        return dict(os.environ, **own)

    def write_files(self) -> None:
        """Write the files of the definition into the private directory."""
        for name, text in self.definition["files"].items():
            path = os.path.join(self.directory, name)
            write_private(path, self.filled(text))
            if text.startswith("#!"):
                os.chmod(path, 0o700)

    def await_listening(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait until the program listens on its port.  Raises LaunchError, PortTaken."""
        name = self.definition["name"]
        limit = time.monotonic() + self.definition["seconds"]
        while True:
            owners = listeners(self.port)
            if owners - {self.account.pw_uid}:
                raise PortTaken
            code = process.poll()
            if code is not None:
                text = "%s ended with exit code %d before it listened on its port" % (name, code)
                raise LaunchError(text, code if code == NOT_FOUND else FAILED)
            if owners:
                return
            if time.monotonic() > limit:
                text = "%s does not listen on port %d after %d s"
                raise LaunchError(text % (name, self.port, self.definition["seconds"]))
            time.sleep(LOOK)

    # -- the file by which the user's own commands find the program --

    def write_session(self) -> None:
        """Write the session file into the home of the user, who alone can read it."""
        directory = self.account.pw_dir
        for name in (".oar", "apps", self.definition["instance"]):
            directory = os.path.join(directory, name)
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory, 0o700)
        os.chmod(directory, 0o700)
        remove_stale(directory)
        self.session_file = os.path.join(directory, "%d.json" % self.job_id)
        session = {
            "job": self.job_id,
            "app": self.definition["name"],
            "family": 4 if self.family == socket.AF_INET else 6,
            "port": self.port,
            "token": self.token,
            "path": self.filled(self.definition["path"]),
        }
        temporary = "%s.%d" % (self.session_file, os.getpid())
        write_private(temporary, json.dumps(session))
        os.rename(temporary, self.session_file)

    def keep_session(self, is_over: threading.Event) -> None:
        """Write the session file again from time to time, so that no other job takes it for a stale one."""
        while not is_over.wait(REFRESH):
            with contextlib.suppress(OSError):
                self.write_session()

    def remove_session(self) -> None:
        """Remove the session file."""
        if self.session_file:
            with contextlib.suppress(OSError):
                os.unlink(self.session_file)


def missing(program: str) -> "NoReturn":
    """Raise LaunchError for a program that is not installed."""
    text = "the program %s is not installed on %s, or not in PATH. Ask the administrators of the cluster for it"
    raise LaunchError(text % (program, os.uname().nodename), NOT_FOUND)


def write_private(path: str, text: str) -> None:
    """Write a new file that only its owner can read."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def remove_stale(directory: str) -> None:
    """Delete old session files: a job that is killed cannot remove its own."""
    limit = time.time() - STALE_DAYS * 86400
    for entry in os.scandir(directory):
        with contextlib.suppress(OSError):
            if entry.stat(follow_symlinks=False).st_mtime < limit:
                os.unlink(entry.path)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End the program if it runs."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# -- ports ------------------------------------------------------------------------------------------------------------


def address_family() -> int:
    """Return the family of the address by which other machines reach this node: IPv4 if it has one."""
    with contextlib.suppress(OSError):
        socket.getaddrinfo(os.uname().nodename, None, socket.AF_INET)
        return socket.AF_INET
    with contextlib.suppress(OSError):
        socket.getaddrinfo(os.uname().nodename, None, socket.AF_INET6)
        return socket.AF_INET6
    return socket.AF_INET


def free_port(family: int, first: int, last: int) -> int:
    """Return a port of the site on which nothing listens, at random.  Raises LaunchError."""
    numbers = range(first, last + 1)
    for port in secrets.SystemRandom().sample(numbers, min(PORTS_TRIED, len(numbers))):
        if listeners(port):
            continue
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
            return port
    raise LaunchError("no port from %d to %d is free on this node" % (first, last))


def listeners(port: int) -> "set[int]":
    """Return the users whose processes listen on a port, on any address."""
    found = set()
    for line in socket_lines():
        fields = line.split()
        if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
            found.add(int(fields[7]))
    return found


def socket_lines() -> "Iterator[str]":
    """Yield the lines of the kernel's tables of TCP sockets."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open("/proc/net/%s" % name, encoding="ascii") as table:
            next(table)
            yield from table


# -- output -----------------------------------------------------------------------------------------------------------


def copy_without(source: "IO[bytes]", token: str) -> None:
    """Copy the output of the program to the output of the job, which others may read, without the token."""
    secret, shown, kept = token.encode("ascii"), b"[token]", b""
    for line in iter(lambda: source.readline(LONGEST_LINE), b""):
        data = (kept + line).replace(secret, shown)
        end_of_data = len(data) if data.endswith(b"\n") else max(0, len(data) - len(secret) + 1)
        kept = data[end_of_data:]  # of a longer line, it may be the beginning of the token
        write_all(data[:end_of_data])
    write_all(kept)


def write_all(data: bytes) -> None:
    """Write to the output of the job; drop what cannot be written, such as on a full disk."""
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(1, data) :]


def stop(number: int, _: "FrameType | None") -> "NoReturn":
    """Handle a signal that ends the job: the private files are removed."""
    sys.exit(128 + number)


def main(definition: "Definition") -> int:
    """Run the program; return the exit code of the job."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        return AppJob(definition).run()
    except (LaunchError, OSError) as error:
        sys.stderr.write("# Error: %s.\n" % error)
        return error.code if isinstance(error, LaunchError) else FAILED

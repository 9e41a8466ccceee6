"""The warm end of a server's connection to this node: reads requests, forks one child for each, carries their talk.

The server streams this program through ``ssh`` to an interpreter that is root already (see ``oar/lib/remote``); it
is no daemon, since it ends when its standard input ends.  One JSON object per line, in both directions:

==========================================================  ======================================================
from the server                                             to the server
==========================================================  ======================================================
``{"op": "load", "name": n, "hash": h, "source": text}``    ``{"hello": 1, "boot_id": b, "python": v}`` at start
``{"op": "run", "id": i, "program": n, "hash": h,``         ``{"id": i, "accepted": pid}``
``"action": a, "node": host, "deadline": s, "data": d}``    ``{"id": i, "line": text}`` one line of its output
``{"op": "command", "id": i, "argv": [...], "account": u,`` ``{"id": i, "exit": code, "stderr": tail}`` the end
``"node": host, "deadline": s, "stdin": text}``
``{"op": "line", "id": i, "text": t}`` a line for a child
``{"op": "close", "id": i}`` end of file for it
``{"op": "cancel", "id": i}`` close, TERM, KILL             ``{"beat": 1}`` every 10 s
                                                            ``{"left": pid, "exit": code}`` the end of a program
                                                            whose request was over
==========================================================  ======================================================

With ``"quiet": true`` what a command says is thrown away.

A program that says ``SHORT = True`` or ``STANDING = True`` is run by a worker, a child that is kept for the next such
request: a fork of an interpreter costs more than what these programs do.  A standing one is talked with, and may go on
by itself; when it comes back it is as it was before, else it ends.  Any other request has a child of its own.  A worker
reads the length of a request, a line, and the request.  The server repeats a request whose acceptance it does not have
when the connection is lost; a program says with ``is_repeatable(action, data)`` which ones may run twice, else none.

A child has its part of the talk as descriptors 0, 1 and 2 and no other descriptor, and leads a session of its own.
When this one ends a program lives on, it sees an end of file; a command is ended.  Exit code 128 + n: by signal n.

Python >= 3.6, standard library only: this file and the programs it loads travel to nodes with nothing installed.
"""

import contextlib
import errno
import gc
import json
import os
import select
import signal
import sys
import time
import types
import warnings  # noqa: F401 - what os.execvpe loads: those who call it may not be able to read the libraries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn

    #: A line of the channel.
    Message = dict[str, Any]
    #: The hash of its text, the module that was made of it.
    Program = tuple[str, types.ModuleType]

STDERR_TAIL = 4096  #: bytes of a child's standard error that are sent with its end
LONGEST_LINE = 1 << 20  #: a child that writes a longer line has it cut there
READ_SIZE = 1 << 16
CANCEL_GRACE = 10.0  #: seconds between the TERM and the KILL of a cancelled request
#: Exit codes of requests that were not begun: this node has no process for it; the program is not the server's.
NO_PROCESS_EXIT, STALE_EXIT = 30, 31
#: What a program may say to the session itself (as in ``node_base``): it is not to be ended with its request; its
#: request is over.
INDEPENDENT, DETACHED = b"\0independent", b"\0detached"
DONE = b"\0done "  #: a worker has carried out its request, and is free; the exit code follows
#: Of nsswitch.conf: where accounts are looked up, and what asks nobody but this machine.
ACCOUNT_DATABASES, LOCAL_SERVICES = (b"passwd:", b"group:", b"initgroups:"), {b"files", b"compat", b"systemd"}
BEAT_SECONDS = 10.0  #: the server hears so often that this node lives
IDLE_WORKERS = 4  #: kept without limit of time
#: Workers beyond these are kept for this time, in seconds, since a burst of ends is followed by a burst of launches: a
#: fork for each launch would copy the pages that a worker has already.
BURST_SECONDS = 10.0
#: Limit of the workers that are idle or go on by themselves, but for ``IDLE_WORKERS``: each has 3 of the 1024
#: descriptors of a process.
MOST_AWAY = 200
#: The acceptance of a request that may be repeated waits for the first line of the program, at most for this time, in
#: seconds: each message to the server is a packet that wakes two threads there.
ACCEPT_DELAY = 0.2
REQUESTS_OF_A_WORKER = 100  #: then another takes its place
LENGTH = b"%010d\n"  #: of a request to a worker


class SessionRequest:
    """What the server asks for: ``op`` of its messages."""

    LOAD = "load"
    RUN = "run"
    COMMAND = "command"
    LINE = "line"
    CLOSE = "close"
    CANCEL = "cancel"


class Child:
    """One running request: its process and the session's ends of its three pipes."""

    def __init__(self, pid: int, stdin: int, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.stdin: "int | None" = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.request_id: "int | None" = None
        self.deadline: "float | None" = None
        self.kill_at: "float | None" = None
        self.is_command = self.is_worker = self.is_standing = self.independent = self.closing = False
        self.served = 0  #: requests that a worker has had
        self.idle_since = 0.0
        self.loads = 0  #: programs that were loaded when it was forked
        self.to_write = self.partial = self.tail = b""

    def descriptors(self) -> "list[int]":
        """Return the pipes that are still open."""
        return [fd for fd in (self.stdin, self.stdout, self.stderr) if fd is not None]


class SessionLoop:
    """The state of the loop: programs by name, children by request, by pid and by descriptor."""

    def __init__(self) -> None:
        self.programs: "dict[str, Program]" = {}
        self.loads = 0  #: programs that were loaded, with those that are replaced
        self.children: "dict[int | None, Child]" = {}
        self.idle: "list[Child]" = []  #: workers without a request; the last one has been idle for the shortest time
        self.away: "list[Child]" = []  #: workers that go on by themselves: their request is over
        self.strays: "list[int]" = []  #: pids of other children whose request is over
        self.next_beat = time.monotonic() + BEAT_SECONDS
        self.buffer = b""
        self.to_send, self.is_urgent = b"", False
        self.send_before = float("inf")  #: the latest time, by the monotonic clock, to send what is not urgent
        self.poll = select.poll()
        self.owners: "dict[int, Child]" = {}
        self.wake_read, self.wake_write = os.pipe()
        for fd in (self.wake_read, self.wake_write):
            os.set_blocking(fd, False)

    # -- the channel -------------------------------------------------------------------------------------------

    def send(self, message: "Message", at_once: bool = True) -> None:
        """Let one line be written to the server, with the others of this turn of the loop, or with the next one."""
        self.to_send += (json.dumps(message) + "\n").encode("ascii")
        self.is_urgent |= at_once

    def flush(self) -> None:
        """Write what is to be sent; a broken channel ends the session."""
        self.is_urgent, self.send_before = False, float("inf")
        try:
            while self.to_send:
                self.to_send = self.to_send[os.write(1, self.to_send) :]
        except OSError:
            self.leave()

    def leave(self) -> "NoReturn":
        """End the session: its programs see the end of their input, its commands are ended."""
        for child in self.children.values():
            if child.is_command:
                signal_group(child.pid, signal.SIGTERM)
        with contextlib.suppress(OSError):  # the server may still read, but is not waited for
            os.set_blocking(1, False)
            os.write(1, self.to_send)
        os._exit(0)

    def receive(self) -> None:
        """Take what came from the server; an end of file ends the session and commands, but never a program."""
        block = os.read(0, READ_SIZE)
        if not block:
            self.leave()
        lines = (self.buffer + block).split(b"\n") if b"\n" in block else [self.buffer + block]
        self.buffer = lines.pop()
        for line in lines:
            self.handle(json.loads(line.decode("utf-8")), line)

    def handle(self, message: "Message", line: bytes) -> None:
        """Do what a message of the server asks for; ``line``: its text."""
        op = message.get("op")
        if op == SessionRequest.LOAD:
            self.load(message["name"], message["hash"], message["source"])
        elif op == SessionRequest.RUN:
            self.run(message, line)
        elif op == SessionRequest.COMMAND:
            self.start(message, lambda: execute(message))
        elif message.get("id") in self.children:
            self.pass_on(op, message, self.children[message["id"]])

    def pass_on(self, op: "str | None", message: "Message", child: Child) -> None:
        """Do what a message asks for that is about a running request."""
        if op == SessionRequest.CANCEL:
            self.cancel(child)
        elif child.is_worker and not child.is_standing:
            return
        elif op == SessionRequest.LINE:
            self.feed(child, message["text"].encode("utf-8", "surrogateescape") + b"\n")
        elif op == SessionRequest.CLOSE:
            child.closing = True
            self.feed(child, b"")

    # -- programs ----------------------------------------------------------------------------------------------

    def load(self, name: str, digest: str, source: str) -> None:
        """Compile a program once; later ones may import it by its name.  Workers that do not have it go."""
        if name in self.programs and self.programs[name][0] == digest:
            return
        while self.idle:
            self.let_go(self.idle.pop())
        module = types.ModuleType(name)
        module.__file__ = "<" + name + ">"
        sys.modules[name] = module
        exec(compile(source, "<" + name + ">", "exec"), module.__dict__)
        self.programs[name] = (digest, module)
        self.loads += 1

    def run(self, message: "Message", line: bytes) -> None:
        """Let a program carry out an action, if it is the one that the server means."""
        digest, module = self.programs.get(message["program"], ("", None))
        if module is None or digest != message["hash"]:
            text = "program %s of hash %s is not loaded in this session" % (message["program"], message["hash"])
            self.send({"id": message["id"], "exit": STALE_EXIT, "stderr": text})
        elif getattr(module, "SHORT", False) or getattr(module, "STANDING", False):
            self.employ(message, line, module)
        else:
            self.start(message, lambda: call(module, message))

    # -- children ----------------------------------------------------------------------------------------------

    def start(self, message: "Message", body: "Callable[[], int]") -> None:
        """Give a request a child of its own, which runs ``body`` and exits with what it returns."""
        child = self.fork(message, body)
        if child is None:
            return
        child.is_command = message["op"] == SessionRequest.COMMAND
        self.accept(child, message)
        self.is_urgent = True  # a server that loses this connection must not repeat a command
        if "stdin" in message:
            child.closing = True
            self.feed(child, message["stdin"].encode("utf-8", "surrogateescape"))

    def employ(self, message: "Message", line: bytes, module: types.ModuleType) -> None:
        """Give a request for a program to a worker."""
        worker = self.idle.pop() if self.idle else self.fork(message, lambda: serve(self.programs))
        if worker is not None:
            worker.is_worker, worker.is_standing = True, getattr(module, "STANDING", False)
            worker.served += 1
            self.accept(worker, message)
            self.is_urgent |= not may_be_repeated(module, message)
            self.feed(worker, LENGTH % len(line) + line)

    def dismiss(self, worker: Child, code: int) -> None:
        """End the request of a worker that has done it: it is kept for the next one, or let go."""
        while self.take(worker, worker.stderr):
            pass
        if worker in self.away:
            self.away.remove(worker)
            self.tell_end(worker.pid, code)
        else:
            self.finish(worker, code)
        if self.is_wanted(worker):
            worker.request_id, worker.deadline, worker.kill_at = None, None, None
            worker.independent, worker.tail, worker.idle_since = False, b"", time.monotonic()
            self.idle.append(worker)
        else:
            self.let_go(worker)

    def is_wanted(self, worker: Child) -> bool:
        is_fresh = worker.loads == self.loads and worker.served < REQUESTS_OF_A_WORKER
        has_room = len(self.idle) < IDLE_WORKERS or len(self.idle) + len(self.away) < MOST_AWAY
        return is_fresh and worker.stdin is not None and has_room

    def trim(self, now: float) -> None:
        """End the workers beyond ``IDLE_WORKERS`` that have been idle for ``BURST_SECONDS``."""
        while len(self.idle) > IDLE_WORKERS and now - self.idle[0].idle_since >= BURST_SECONDS:
            self.let_go(self.idle.pop(0))

    def let_go(self, worker: Child) -> None:
        """Let a worker that has no request see the end of its input."""
        self.strays.append(worker.pid)
        self.hang_up(worker)

    def hang_up(self, child: Child) -> None:
        """Close what is left of the pipes of a child."""
        for fd in child.descriptors():
            self.forget(fd)

    def accept(self, child: Child, message: "Message") -> None:
        """Bind a request to a child, and report that, at the latest after ``ACCEPT_DELAY``."""
        limit = message.get("deadline")
        child.request_id = message["id"]
        child.deadline = None if limit is None else time.monotonic() + limit
        self.children[child.request_id] = child
        self.send({"id": child.request_id, "accepted": child.pid}, at_once=False)
        self.send_before = min(self.send_before, time.monotonic() + ACCEPT_DELAY)

    def fork(self, message: "Message", body: "Callable[[], int]") -> "Child | None":
        """Fork a child with three pipes; return None, and refuse the request, if that cannot be."""
        pipes: "list[tuple[int, int]]" = []
        try:
            for _ in range(3):
                pipes.append(os.pipe())
            pid = os.fork()
        except OSError as error:
            for fd in sum(pipes, ()):
                os.close(fd)
            self.send({"id": message["id"], "exit": NO_PROCESS_EXIT, "stderr": "cannot start a process: %s" % error})
            return None
        (in_read, in_write), (out_read, out_write), (err_read, err_write) = pipes
        if pid == 0:
            become_child((in_read, out_write, err_write), body)
        for fd in (in_read, out_write, err_write):
            os.close(fd)
        for fd in (in_write, out_read, err_read):
            os.set_blocking(fd, False)
        child = Child(pid, in_write, out_read, err_read)
        child.loads = self.loads
        for fd in (out_read, err_read):
            self.owners[fd] = child
            self.poll.register(fd, select.POLLIN)
        return child

    def feed(self, child: Child, data: bytes) -> None:
        """Give a child bytes of its standard input, now as far as the pipe takes them."""
        if child.stdin is None:
            return
        child.to_write += data
        try:
            while child.to_write:
                child.to_write = child.to_write[os.write(child.stdin, child.to_write) :]
        except OSError as error:
            if error.errno == errno.EAGAIN:
                self.owners[child.stdin] = child
                self.poll.register(child.stdin, select.POLLOUT)
                return
            child.to_write, child.closing = b"", True
        if child.closing:
            self.forget(child.stdin)
            child.stdin = None
        else:
            self.ignore(child.stdin)

    def ignore(self, fd: int) -> None:
        """Watch a descriptor no longer."""
        if fd in self.owners:
            self.poll.unregister(fd)
            del self.owners[fd]

    def forget(self, fd: int) -> None:
        """Close a descriptor."""
        self.ignore(fd)
        os.close(fd)

    def take(self, child: Child, fd: int) -> bool:
        """Read what a child wrote; return False at the end of file or when there is no more for now."""
        try:
            block = os.read(fd, READ_SIZE)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR):
                return False
            block = b""
        if not block:
            self.ignore(fd)
            return False
        if fd == child.stderr:
            child.tail = (child.tail + block)[-STDERR_TAIL:]
            return True
        return self.take_lines(child, block)

    def take_lines(self, child: Child, block: bytes) -> bool:
        """Do what lines for the session ask for, pass the others on; return False if the child goes on by itself."""
        lines = (child.partial + block).split(b"\n")
        child.partial = lines.pop()[:LONGEST_LINE]
        for line in lines:
            if line == INDEPENDENT:
                child.independent = True
            elif line == DETACHED:
                self.release(child)
                if child not in self.away:
                    return False
            elif child.is_worker and line.startswith(DONE):
                self.dismiss(child, int(line[len(DONE) :]))
                return False
            else:
                self.send({"id": child.request_id, "line": line.decode("utf-8", "replace")})
        return True

    def release(self, child: Child) -> None:
        """Let a process go on by itself: its request is over; a worker may come back for another one.

        Of too many workers the last ones do not: they see the end of their input, and end.
        """
        if child.is_worker and len(self.idle) + len(self.away) < MOST_AWAY:
            self.away.append(child)
            self.finish(child, 0)
            child.request_id, child.deadline, child.kill_at = None, None, None
        else:
            self.strays.append(child.pid)
            self.close(child, 0)

    def cancel(self, child: Child) -> None:
        """End the input of a request, and ask its process to end; it is killed later if it does not."""
        child.closing, child.deadline = True, None
        self.feed(child, b"")
        if child.independent:
            return
        child.kill_at = time.monotonic() + CANCEL_GRACE
        signal_group(child.pid, signal.SIGTERM)

    def reap(self) -> None:
        """Send the ends of the children that have ended, after all that they wrote."""
        with contextlib.suppress(OSError):
            while os.read(self.wake_read, READ_SIZE):
                pass
        for stray in list(self.strays):
            pid, status = os.waitpid(stray, os.WNOHANG)
            if pid:
                self.bury(pid, status)
        for worker in [*self.idle, *self.away]:
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                self.lose(worker, status)
        for child in list(self.children.values()):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self.end(child, status)

    def end(self, child: Child, status: int) -> None:
        """End the request of a child that has ended."""
        for fd in (child.stdout, child.stderr):
            while child.request_id in self.children and self.take(child, fd):
                pass
        if child.request_id not in self.children:
            self.lose(child, status)
            return
        if child.partial:
            self.send({"id": child.request_id, "line": child.partial.decode("utf-8", "replace")})
        self.close(child, exit_code(status))

    def lose(self, child: Child, status: int) -> None:
        """Forget a child that has ended without a request."""
        if child in self.idle:
            self.idle.remove(child)
        elif child in self.away:
            self.away.remove(child)
            self.tell_end(child.pid, exit_code(status))
        else:
            self.bury(child.pid, status)
            return
        self.hang_up(child)

    def bury(self, pid: int, status: int) -> None:
        """Tell the end of a process whose request was over: what runs a job may have been killed."""
        self.strays.remove(pid)
        self.tell_end(pid, exit_code(status))

    def tell_end(self, pid: int, code: int) -> None:
        """Tell how a process that went on by itself has ended, or a worker what it did meanwhile."""
        self.send({"left": pid, "exit": code}, at_once=code != 0)

    def close(self, child: Child, code: int) -> None:
        """Forget a request and say how it ended."""
        self.hang_up(child)
        self.finish(child, code)

    def finish(self, child: Child, code: int) -> None:
        """Say how a request ended."""
        del self.children[child.request_id]
        self.send({"id": child.request_id, "exit": code, "stderr": child.tail.decode("utf-8", "replace")})

    def enforce(self) -> float:
        """Do what is due: sign of life, deadlines, kills; return the seconds until something is due again."""
        now = time.monotonic()
        if now >= self.next_beat:
            self.next_beat = now + BEAT_SECONDS
            self.send({"beat": 1})
            self.trim(now)
        self.is_urgent |= now >= self.send_before
        for child in self.children.values():
            if child.deadline is not None and now >= child.deadline:
                self.cancel(child)
            if child.kill_at is not None and now >= child.kill_at:
                child.kill_at = None
                signal_group(child.pid, signal.SIGKILL)
        moments = [m for c in self.children.values() for m in (c.deadline, c.kill_at) if m is not None]
        return max(0.0, min([self.next_beat, self.send_before, *moments]) - now)

    # -- the loop ----------------------------------------------------------------------------------------------

    def loop(self) -> "NoReturn":
        """Serve the channel until it ends."""
        signal.set_wakeup_fd(self.wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.poll.register(0, select.POLLIN)
        self.poll.register(self.wake_read, select.POLLIN)
        self.send({"hello": 1, "boot_id": boot_id(), "python": "%d.%d.%d" % sys.version_info[:3]})
        self.flush()
        load_account_services()
        while True:
            patience = self.enforce()
            if self.is_urgent:
                self.flush()
            for fd, _ in self.poll.poll(patience * 1000 + 1):
                if fd == 0:
                    self.receive()
                elif fd == self.wake_read:
                    self.reap()
                elif fd in self.owners:
                    self.serve_pipe(fd)

    def serve_pipe(self, fd: int) -> None:
        """Write to, or read from, a pipe of a child that is ready."""
        child = self.owners[fd]
        if fd == child.stdin:
            self.feed(child, b"")
        else:
            self.take(child, fd)


def become_child(standard: "Sequence[int]", body: "Callable[[], int]") -> "NoReturn":
    """In the forked child: keep its own pipes, default signals, its own session; then ``body``, and the end."""
    gc.disable()  # a collection would touch, and so copy, every page that is shared with the session
    code = 1
    try:
        os.setsid()
        for target, fd in enumerate([os.dup(fd) for fd in standard]):
            os.dup2(fd, target)
        close_all_but_standard()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        code = body()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException as error:  # noqa: BLE001 - the last guard of a process: say it, end
        os.write(2, (description(error) + "\n").encode("utf-8", "replace"))
    finally:
        os._exit(code)


def description(error: BaseException) -> str:
    """Return what an administrator or a user is told of an error."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return "%s: %s" % (os.fsdecode(error.filename), error.strerror)
    return "%s: %s" % (type(error).__name__, error)


def may_be_repeated(module: types.ModuleType, message: "Message") -> bool:
    """Return whether a request may run twice, even at the same time."""
    is_repeatable: "Callable[[str, Any], bool]" = getattr(module, "is_repeatable", lambda *_: False)
    return is_repeatable(message["action"], message["data"])


def call(module: types.ModuleType, message: "Message") -> int:
    """Body of a program's child: return the exit code of its ``main``; the environment is as site scripts expect it."""
    os.environ["TAKTUK_HOSTNAME"] = message.get("node") or ""
    code: int = module.main(message["action"], message["data"])
    return code


def serve(programs: "Mapping[str, Program]") -> int:
    """Body of a worker: what is left at the end of the input is not begun."""
    while True:
        length = read_exactly(len(LENGTH % 0))
        if not length:
            return 0
        message = json.loads(read_exactly(int(length)).decode("utf-8"))
        code = call(programs[message["program"]][1], message)
        os.write(1, DONE + b"%d\n" % code)


def read_exactly(size: int) -> bytes:
    """Return so many bytes of the standard input, and leave what follows there; nothing if it ends before."""
    blocks: "list[bytes]" = []
    while size:
        block = os.read(0, size)
        if not block:
            return b""
        blocks.append(block)
        size -= len(block)
    return b"".join(blocks)


def close_all_but_standard() -> None:
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)


def execute(message: "Message") -> "NoReturn":
    """Body of a ``command`` request: run an argument list as an account of this node."""
    if message.get("account"):
        become_account(message["account"])
    argv = [word.encode("utf-8", "surrogateescape") for word in message["argv"]]
    os.environ["TAKTUK_HOSTNAME"] = message.get("node") or ""
    os.chdir("/")
    if message.get("quiet"):
        execute_quietly(argv)
    os.execvpe(argv[0], argv, os.environb)


def execute_quietly(argv: "list[bytes]") -> "NoReturn":
    """Execute a program that nobody listens to: only why it could not be started is told."""
    stderr, nowhere = os.dup(2), os.open("/dev/null", os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    try:
        os.execvpe(argv[0], argv, os.environb)
    finally:
        os.dup2(stderr, 2)


def become_account(name: str) -> None:
    """Be an account of this node for good; raise KeyError if it does not exist."""
    import pwd

    account = pwd.getpwnam(name)
    if os.geteuid() == 0:
        os.initgroups(name, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    for variable in ("USER", "LOGNAME"):
        os.environ[variable] = name
    os.environ["HOME"] = account.pw_dir


def load_account_services() -> None:
    """Load what the C library looks accounts up with: else each child would do that again.

    Not where it would ask another machine, which may not answer.
    """
    try:
        with open("/etc/nsswitch.conf", "rb") as file:
            lines = [line.split(b"#")[0].split() for line in file]
    except OSError:
        return
    services = {word for words in lines if words and words[0] in ACCOUNT_DATABASES for word in words[1:]}
    if services <= LOCAL_SERVICES:
        import pwd

        pwd.getpwuid(0)
        os.getgrouplist("root", 0)


def exit_code(status: int) -> int:
    """Return the exit code that a wait status means: 128 + n by signal n."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def signal_group(pid: int, number: int) -> None:
    """Signal the group that a process leads; the process alone if it leads none yet."""
    for target in (os.killpg, os.kill):
        try:
            target(pid, number)
            return
        except ProcessLookupError:
            pass


def boot_id() -> str:
    """Return the number that the kernel has chosen for its life."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def main() -> "NoReturn":
    """Serve the channel that is standard input and output."""
    os.chdir("/")
    os.umask(0o022)
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    SessionLoop().loop()


if __name__ == "__main__":
    main()

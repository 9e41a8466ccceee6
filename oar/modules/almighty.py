"""Almighty, the server: binds every endpoint, asks the automaton what is to run, and watches over the children.

One thread and one poll; it never waits for a child and never touches the database.  What is decided is decided in
``oar.modules.automaton``; how children live and die is in ``oar.modules.supervisor``.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oar.lib import bus, frames, logs, process, runtime
from oar.lib.config import Config
from oar.lib.errors import AlreadyRunning, ConfigError, OarError
from oar.lib.frames import (
    Answer,
    At,
    BadFrame,
    Done,
    Frame,
    Hello,
    Load,
    Pong,
    Ready,
    Report,
    Status,
    StatusQuestion,
    Wait,
    Waited,
    decode_request,
    decode_tag,
)
from oar.lib.lineport import Line, LinePort
from oar.lib.messages import Ask, Due, Effect, Energy, Mail, Notice, Wake
from oar.lib.notify import HourlyLimit, Mailer
from oar.lib.runtime import DEFAULT_OARDIR, DEFAULT_PATH
from oar.lib.version import VERSION
from oar.modules.automaton import FOLLOW, Automaton, Lane, Module, Timing, result_of
from oar.modules.supervisor import PassEnd, Program, State, Supervisor

log = logging.getLogger(__name__)

RUNNER = "bipbip_commander"
GRETA = "greta"

#: The Runner is tried again in this distance until it has the database, for so long.
RUNNER_RETRY = 2.0
DATABASE_PATIENCE = 300.0
LONGEST_RUNNER_PAUSE = 60.0
#: A killed server may leave a Runner behind, and a killed Runner its connection to the database, that hold the lock a
#: little longer.
ORPHAN_PATIENCE = 20.0
#: From the stop on: the modules get so long to end their pass, all children so long in all.
PASS_TO_END = 5.0
LONGEST_STOP = 40.0
STATUS_PERIOD = 600.0
#: Bad messages that are logged within an hour; others are only counted.
BAD_MESSAGES_LOGGED = 100

EXIT_STOP = 0
EXIT_CONFIGURATION = 1
EXIT_DATABASE = 3
EXIT_RUNNING = 4


# -- what is started --------------------------------------------------------------------------------------------------


def programs(config: Config, endpoint: str, oardir: str) -> list[Program]:
    """Return how the children are started."""

    def ours(module: str) -> tuple[str, ...]:
        return (sys.executable, "-I", "-m", module, "--worker", endpoint)

    longest = float(config.module_max_duration)
    runner = Program(RUNNER, ours(f"oar.modules.{RUNNER}"), hello=DATABASE_PATIENCE + 60, missed_pings=12)
    modules = [
        Program(module, ours(f"oar.modules.{module}"), longest_pass=longest)
        for module in Module
        if module is not Module.META_SCHED
    ]
    longest = max(longest, 10.0 * config.scheduler_timeout)
    if config.meta_sched_cmd == "kao":
        return [runner, *modules, Program(Module.META_SCHED, ours("oar.modules.meta_sched"), longest_pass=longest)]
    import shlex

    command, *arguments = shlex.split(config.meta_sched_cmd)
    one_shot = (os.path.join(oardir, command), *arguments)
    worker = (*one_shot, "--worker", endpoint)
    return [
        runner,
        *modules,
        Program(Module.META_SCHED, worker, hello=10.0, longest_pass=longest, one_shot=one_shot),
    ]


def child_environment(environment: Mapping[str, str], conf_file: str) -> dict[str, str]:
    """Return what children see of the environment (server.md 3.5)."""
    result = {
        "OARDIR": environment.get("OARDIR", DEFAULT_OARDIR),
        "OARCONFFILE": conf_file,
        "OARDO_USER": "oar",
        "OARDO_UID": str(os.getuid()),
        "PATH": environment.get("PATH", DEFAULT_PATH),
        "LANG": "C.UTF-8",
    }
    return result | {name: environment[name] for name in ("HOME", "TZ") if name in environment}


def timing(config: Config) -> Timing:
    """Return the periods of the automaton."""
    return Timing(config.sarko_frequency, config.finaud_frequency, config.scheduler_min_time_between_2_calls)


# -- the server -------------------------------------------------------------------------------------------------------


class Sockets:
    """All endpoints, bound."""

    def __init__(self, context: bus.Context, config: Config) -> None:
        """Bind.  Raises AlreadyRunning, ConfigError."""
        self._open: list[bus.Pull | bus.Router | LinePort] = []
        self.requests: list[bus.Pull] = []
        try:
            for host, port in (
                (config.server_hostname, config.appendice_server_port),
                (config.bipbip_commander_server, config.bipbip_commander_port),
                (config.greta_server, config.greta_port),
            ):
                if port:
                    self.requests.append(bus.Pull(context, host, port))
                    self._open.append(self.requests[-1])
            self.lines = _bind_lines(config)
            self._open.append(self.lines)
            self.control = bus.Router(context, bus.control_endpoint(config))
            self._open.append(self.control)
        except OarError:
            self.close()
            raise

    def close(self) -> None:
        """Close all of them."""
        for one in self._open:
            one.close()
        self._open.clear()


def _bind_lines(config: Config) -> LinePort:
    try:
        return LinePort(config.server_port, config.allowed_networks)
    except OSError as error:
        raise AlreadyRunning(
            f"cannot listen on port {config.server_port} ({error.strerror}): "
            "an Almighty process must be already started"
        ) from None


@dataclass(slots=True)
class _Runner:
    """What is known of the Runner besides its process."""

    is_ready: bool = False
    first_try: float = 0.0
    next_try: float = 0.0
    locked_out: float | None = None  #: since when another one has the lock
    pause: float = RUNNER_RETRY
    load: Load = field(default_factory=lambda: Load(0, 0))


@dataclass(frozen=True, slots=True)
class _Waiter:
    """Somebody who wants to know when a round has ended that began after he asked."""

    sender: bytes
    rounds_begun: int


class Almighty:
    """The loop and what it holds."""

    def __init__(
        self,
        config: Config,
        sockets: Sockets,
        children: list[Program],
        environment: Mapping[str, str],
        *,
        conf_file: str,
        orphan_patience: float,
    ) -> None:
        self._orphan_patience = orphan_patience
        self._conf_file = conf_file
        self._sockets = sockets
        self._manager = process.ServiceManager(environment)
        self._poll = bus.Poll(*sockets.requests, sockets.lines, sockets.control)
        self._children = Supervisor(children, child_environment(environment, conf_file), self._poll, self._send)
        self._automaton = Automaton(timing(config))
        self._mailer = Mailer(config)
        self._failure_mails = HourlyLimit(1)
        self._bad_messages = HourlyLimit(BAD_MESSAGES_LOGGED)
        self._runner = _Runner()
        self._waiters: list[_Waiter] = []
        self._started = time.time()
        self._next_status = time.monotonic() + STATUS_PERIOD
        self._exit: int | None = None

    # -- the loop --

    def run(self, signals: process.Signals) -> int:
        """Serve until a signal says stop; return the exit code."""
        self._poll.add(signals)
        self._runner.first_try = time.monotonic()
        while not signals.stop and self._exit is None:
            self._turn(signals)
        self._stop(signals)
        return EXIT_STOP if self._exit is None else self._exit

    def _turn(self, signals: process.Signals) -> None:
        self._hear(signals, self._patience())
        if signals.reload:
            signals.reload = False
            self._reload()
        now = time.monotonic()
        for end in self._children.tick(now):
            self._pass_ended(end, now)
        self._keep_runner(now)
        if self._runner.is_ready:
            for start in self._automaton.due(now):
                self._children.give(start.module, start.disable, now)
        self._sockets.lines.expire(now)
        self._sign_of_life(now)

    def _hear(self, signals: process.Signals, patience: float) -> None:
        """Wait for messages, signals, ends of children and timers; take all messages that are there."""
        ready = self._poll.wait(patience)
        signals.clear()
        for source in ready:
            if isinstance(source, bus.Router):
                for sender, data in source.receive():
                    self._guarded(self._on_control, sender, data)
            elif isinstance(source, process.Child):
                self._children.read(source)
            elif isinstance(source, bus.Pull):
                for data in source.receive():
                    self._guarded(self._on_request, data)
            elif isinstance(source, LinePort):
                for line in source.receive(time.monotonic()):
                    self._guarded(self._on_line, line)

    def _patience(self) -> float:
        now = time.monotonic()
        dates = [self._children.next_look(), self._sockets.lines.expire(now) or now + 60.0, self._next_status]
        if self._runner.is_ready:
            dates.append(now + self._automaton.wait(now))
        if self._children.workers[RUNNER].state is State.DOWN:
            dates.append(self._runner.next_try)
        if self._manager.watchdog_period is not None:
            dates.append(now + self._manager.watchdog_period)
        return max(0.0, min(dates) - now)

    def _guarded(self, handle: Any, *arguments: object) -> None:
        """Let a bad message harm nobody."""
        try:
            handle(*arguments)
        except BadFrame as error:
            if self._bad_messages.allows("bad message", time.monotonic()):
                log.info("refused: %s", error)
        except Exception:  # the guard of messages: what anybody may write must not end the server
            if self._bad_messages.allows("broken off", time.monotonic()):
                log.exception("a message could not be treated")

    # -- messages --

    def _on_line(self, line: Line) -> None:
        """A line on the raw port: answered with OK, or with what the Runner says to a report."""
        try:
            message = decode_tag(line.text)
        except BadFrame:
            self._sockets.lines.drop(line.peer)
            raise
        if isinstance(message, Report):
            report = Report(line.peer, message.job_id, message.code, message.status, message.challenge)
            if not self._to_runner(report):
                self._sockets.lines.drop(line.peer)  # the node comes again
            return
        self._take(message)
        self._sockets.lines.answer(line.peer, "OK")

    def _on_request(self, data: bytes) -> None:
        """A tag, a job or an order about nodes' energy, from outside."""
        self._take(decode_request(data))

    def _take(self, message: Report | Effect) -> None:
        """What somebody has left to be told, whatever door it came by."""
        match message:
            case Wake(tag):
                self._automaton.on_tag(tag)
            case Due(date):
                self._automaton.on_deadline(time.monotonic() + (date - time.time()))
            case Energy():
                self._to_energy(message)
            case _:
                self._to_runner(message)

    def _on_control(self, sender: bytes, data: bytes) -> None:
        """A frame from a child, or from oarnotify on this host."""
        now = time.monotonic()
        match frames.decode(data):
            case Hello() as frame:
                self._children.hello(sender, frame, now)
            case Done() as frame:
                self._children.done(sender, frame, now)
            case Pong():
                self._children.pong(sender)
            case At(queues):
                self._automaton.at(queues)
            case Ready():
                self._runner_is_ready(sender)
            case Load() as frame:
                self._runner.load = frame
            case Answer(peer, text):
                self._sockets.lines.answer(peer, text)
            case Wake() | Ask() | Energy() | Notice() | Mail() | Due() as frame:
                self._take(frame)
            case StatusQuestion():
                self._send(sender, Status(self.status(now)))
            case Wait(tag):
                self._wait(sender, tag)
            case other:
                raise BadFrame(f"unexpected frame {type(other).__name__}")

    def _send(self, receiver: bytes, frame: Frame) -> bool:
        return self._sockets.control.send(receiver, frames.encode(frame))

    def _to_runner(self, frame: Frame) -> bool:
        """Ring the Runner.  Without one the doorbell is lost, and its look at the database finds the work."""
        identity = self._children.workers[RUNNER].identity
        return bool(identity) and self._send(identity, frame)

    def _to_energy(self, frame: Energy) -> None:
        """Relay to Greta; where there is none, nobody halts nodes."""
        greta = self._children.workers.get(GRETA)
        if greta is not None and greta.identity:
            self._send(greta.identity, frame)

    def _wait(self, sender: bytes, tag: str) -> None:
        if tag:
            self._take(decode_tag(tag))
        self._waiters.append(_Waiter(sender, self._automaton.rounds_begun))

    # -- passes and children --

    def _pass_ended(self, end: PassEnd, now: float) -> None:
        if end.name == RUNNER:
            return
        module = Module(end.name)
        hint = None if end.next is None else now + (end.next - time.time())
        self._automaton.on_exit(module, end.code, now, hint)
        if end.code is None or (module, end.code) not in FOLLOW:
            self._failed(module, end.why or f"it ended with code {end.code}")
            self._children.retire(module, "", now)
        elif module is Module.META_SCHED:
            self._round_ended(end.code)

    def _failed(self, name: str, why: str) -> None:
        log.error("module %s failed: %s", name, why)
        if self._failure_mails.allows(name, time.monotonic()):
            self._mailer.administrators(f"Module {logs.spoken(name)} failed", why)

    def _round_ended(self, code: int) -> None:
        done = [waiter for waiter in self._waiters if waiter.rounds_begun < self._automaton.rounds_begun]
        self._waiters = [waiter for waiter in self._waiters if waiter not in done]
        for waiter in done:
            self._send(waiter.sender, Waited(code))

    def _keep_runner(self, now: float) -> None:
        """Start the Runner, and start it again when it is gone; without it nothing else begins."""
        worker, runner = self._children.workers[RUNNER], self._runner
        if worker.state is not State.DOWN:
            return
        self._sockets.lines.drop_unanswered()
        if now < runner.next_try:
            return
        if worker.starts and self._gives_up(worker.last_code, now):
            return
        runner.next_try = now + runner.pause
        if runner.is_ready:
            runner.pause = min(2 * runner.pause, LONGEST_RUNNER_PAUSE)
        self._children.start(RUNNER, now)

    def _gives_up(self, code: int | None, now: float) -> bool:
        """Whether the server ends because of how the Runner has ended."""
        runner = self._runner
        runner.locked_out = (runner.locked_out or now) if code == EXIT_RUNNING else None
        if runner.locked_out is not None and now - runner.locked_out >= self._orphan_patience:
            log.error("an Almighty process must be already started")
            self._exit = EXIT_RUNNING
        elif code == EXIT_CONFIGURATION and not runner.is_ready:
            log.error("the Runner cannot start: see above")
            self._exit = EXIT_CONFIGURATION
        elif not runner.is_ready and now - runner.first_try > DATABASE_PATIENCE:
            log.error("the database could not be reached for %d s", DATABASE_PATIENCE)
            self._exit = EXIT_DATABASE
        return self._exit is not None

    def _runner_is_ready(self, sender: bytes) -> None:
        if self._children.of(sender) is not self._children.workers[RUNNER]:
            raise BadFrame("somebody else than the Runner says that it is ready")
        self._runner.pause = RUNNER_RETRY
        self._runner.locked_out = None
        if self._runner.is_ready:
            return
        self._runner.is_ready = True
        now = time.monotonic()
        for module in Module:
            self._children.start(module, now)
        self._automaton.start()
        self._manager.ready()
        log.info("OAR server %s is up", VERSION)
        self._mailer.administrators("Start OAR server", f"The OAR server {VERSION} has started.")

    # -- reports about itself --

    def status(self, now: float) -> dict[str, Any]:
        """Return what oarnotify --status shows."""
        epoch = time.time() - now
        automaton = self._automaton
        return {
            "version": VERSION,
            "pid": os.getpid(),
            "start": int(self._started),
            "ready": self._runner.is_ready,
            "lanes": {
                lane.value: {"running": automaton.running[lane], "waiting": list(automaton.queues[lane])}
                for lane in Lane
            },
            "modules": {
                module.value: {
                    **self._process_of(module),
                    "passes": record.passes,
                    "failures": record.failures,
                    "last_start": None if record.started is None else round(epoch + record.started, 3),
                    "last_duration": round(record.duration, 3),
                    "last_code": record.code,
                    "last_result": None if record.ended is None else result_of(module, record.code),
                }
                for module, record in automaton.records.items()
            },
            "runner": {
                **self._process_of(RUNNER),
                "waiting": self._runner.load.waiting,
                "running": self._runner.load.running,
            },
        }

    def _process_of(self, name: str) -> dict[str, Any]:
        worker = self._children.workers[name]
        return {
            "pid": worker.child.pid if worker.child else None,
            "state": worker.state.value,
            "restarts": max(0, worker.starts - 1),
        }

    def _sign_of_life(self, now: float) -> None:
        if self._manager.watchdog_period is not None:
            self._manager.alive()
        if now >= self._next_status:
            self._next_status = now + STATUS_PERIOD
            log.info("status: %s", self.status(now))
            busy = [module for module in self._automaton.running.values() if module is not None]
            self._manager.status(f"running: {', '.join(busy) or 'nothing'}")

    def _reload(self) -> None:
        """Read oar.conf again; if it is not right, keep what holds."""
        try:
            parsed = runtime.read_config(self._conf_file)
            problems = [str(problem) for problem in parsed.errors]
        except ConfigError as error:
            problems = [str(error)]
        if problems:
            log.error("the configuration was not read again: %s", "; ".join(problems))
            self._mailer.administrators("Bad configuration", "\n".join(["The old values stay.", *problems]))
            return
        self._automaton.timing = timing(parsed.config)
        self._mailer.close(1)
        self._mailer = Mailer(parsed.config)
        logs.set_up(parsed.config, "Almighty")
        log.info("the configuration was read again; addresses and ports need a restart")

    # -- the end --

    def _stop(self, signals: process.Signals) -> None:
        """Let the children end: passes soon, the Runner's actions at their next safe point; kill what is left."""
        self._manager.stopping()
        log.info("the OAR server stops")
        begin = time.monotonic()
        for source in self._sockets.requests:
            self._poll.remove(source)
        self._poll.remove(self._sockets.lines)
        self._children.stop_all(begin)
        while not self._children.are_down() and (now := time.monotonic()) < begin + LONGEST_STOP:
            self._hear(signals, 0.5)
            self._children.tick(now)
            if now > begin + PASS_TO_END:
                self._end_passes(now)
        self._children.close()
        if self._exit is None:
            self._mailer.administrators("Stop OAR server", f"The OAR server {VERSION} has stopped.")
        self._mailer.close(5)

    def _end_passes(self, now: float) -> None:
        for module in Module:
            self._children.retire(module, "its pass takes too long for a stop", now, signal.SIGKILL)


# -- the program ------------------------------------------------------------------------------------------------------


def lock_pid_file(config: Config) -> process.PidFile:
    """Be the only server on this machine.  Raises AlreadyRunning, ConfigError."""
    directory = Path(config.oar_run_dir)
    file = process.PidFile(directory / process.PID_FILE)
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not file.lock():
            raise AlreadyRunning(f"an Almighty process must be already started (pid {file.holder()})")
    except OSError as error:
        raise ConfigError(f"cannot write in {directory}: {error.strerror}") from None
    return file


def serve(
    config: Config,
    conf_file: str,
    environment: Mapping[str, str],
    children: list[Program],
    orphan_patience: float = ORPHAN_PATIENCE,
) -> int:
    """Be the server until a signal ends it; return the exit code.  Raises AlreadyRunning, ConfigError."""
    os.umask(0o022)
    pid_file = lock_pid_file(config)
    try:
        with (
            process.signals() as signals,
            bus.opened() as context,
            closing(Sockets(context, config)) as sockets,
        ):
            almighty = Almighty(
                config, sockets, children, environment, conf_file=conf_file, orphan_patience=orphan_patience
            )
            return almighty.run(signals)
    finally:
        pid_file.release()


def main() -> int:
    """Run as a program."""
    conf_file = runtime.conf_file()
    try:
        parsed = runtime.read_config(conf_file)
    except ConfigError as error:
        sys.stderr.write(f"[ERROR] {error}\n")
        return EXIT_CONFIGURATION
    for problem in (*parsed.warnings, *parsed.errors):
        sys.stderr.write(f"{'[ERROR]' if problem in parsed.errors else 'Warning:'} {problem}\n")
    if parsed.errors:
        return EXIT_CONFIGURATION
    config = parsed.config
    children = programs(config, bus.control_endpoint(config), os.environ.get("OARDIR", DEFAULT_OARDIR))
    with logs.logging_to(config, "Almighty"):
        for problem in parsed.warnings:
            log.warning("%s", problem)
        try:
            return serve(config, conf_file, os.environ, children)
        except OarError as error:
            log.error("%s", error)
            sys.stderr.write(f"[ERROR] {error}\n")
            return error.exit_code


if __name__ == "__main__":
    sys.exit(main())

"""Almighty, the server: bind all endpoints, distribute messages, run the modules that the automaton selects.

It begins as standby, with the warden as its only child. When the warden holds the server lock, it is active: it binds
the other endpoints, and starts the Runner and the modules. It becomes standby again by executing its program anew.

It has one thread and one poll loop. It never waits for a child and never accesses the database. The decisions are made
in ``oar.modules.automaton`` and ``oar.modules.children``; ``oar.modules.supervisor`` starts and ends the
children.
"""

import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oar.lib import logs, runtime
from oar.lib.base import processes
from oar.lib.base.errors import AlreadyRunning, ConfigError, OarError
from oar.lib.base.hourly_limit import HourlyLimit
from oar.lib.base.version import VERSION
from oar.lib.bus import frames
from oar.lib.bus import sockets as bus
from oar.lib.bus.exit_codes import ServerCode
from oar.lib.bus.frames import (
    Active,
    Alive,
    At,
    Away,
    BadFrame,
    Done,
    EndReport,
    Frame,
    Hello,
    Load,
    LookAgain,
    Lost,
    Pong,
    Ready,
    ReportReply,
    RoundsAnswer,
    RoundsQuestion,
    Standby,
    Status,
    StatusQuestion,
    Waited,
    WaitForRound,
    decode_request,
    decode_tag,
)
from oar.lib.bus.line_port import LinePort, ReceivedLine
from oar.lib.bus.messages import (
    Ask,
    Due,
    Effect,
    Energy,
    EnergyCommand,
    JobAction,
    Tag,
    Wake,
)
from oar.lib.bus.servers import own_server
from oar.lib.config.files import Config
from oar.lib.jobs.states import ServerRole
from oar.lib.notifications.mailer import Mailer
from oar.lib.remote.protocol import ReportAnswer
from oar.lib.runtime import DEFAULT_OARDIR, database_settings
from oar.modules.automaton import NEXT_MODULES, Automaton, Module, Timing
from oar.modules.children import (
    RUNNER,
    WARDEN,
    WARDEN_ARGV,
    DatabaseOutage,
    OutageMail,
    RunnerRestarts,
    ServerEnd,
    WardenProcess,
    child_environment,
    programs,
)
from oar.modules.round_journal import RoundJournal
from oar.modules.server_status import server_status
from oar.modules.supervisor import ChildProgram, PassEnd, State, Supervisor
from oar.modules.worker import UNAVAILABLE

log = logging.getLogger(__name__)

#: Time for which another process may hold the lock of the only server, in seconds.
ORPHAN_PATIENCE = 20.0
#: Time after a stop for the modules to end their pass, and for all children to end, in seconds.
PASS_TO_END = 5.0
LONGEST_STOP = 40.0
#: Time for the warden to release the lock, once all other children have ended.
WARDEN_TO_END = 5.0
#: One of several servers whose warden has no answer of PostgreSQL for so many seconds is no longer active. Its children
#: then have so many seconds to end. The sum must be shorter than the time after which PostgreSQL releases the lock
#: (``connections.LOCK_TCP_LIMITS``, ``warden.SILENT_HOLDER_SECONDS``).
SILENCE_SECONDS, KILL_SECONDS = 6.0, 2.0
STATUS_PERIOD = 600.0
#: Result of ``Almighty.run`` if the process must execute its program again, to become standby.
AGAIN = -1
#: Number of bad messages that are logged within an hour; others are only counted.
BAD_MESSAGES_LOGGED = 100
#: Limit of the orders of programs of the site that are kept while Greta starts; the oldest are dropped.
MOST_ENERGY_ORDERS = 1000


def timing(config: Config) -> Timing:
    return Timing(
        config.sarko_frequency,
        config.finaud_frequency,
        config.scheduler_min_time_between_2_calls,
        has_greta=config.energy_saving_internal,
    )


class Endpoints:
    """All sockets of the server (docs/design/bus.rst, "Endpoints").

    ``requests`` from outside, ``lines`` of nodes, ``control`` of the server's own processes.
    """

    def __init__(self, context: bus.Context, config: Config) -> None:
        """Bind the control socket, which a standby has too. Raises AlreadyRunning, ConfigError."""
        self._context = context
        self.requests: list[bus.Pull] = []
        self.lines: LinePort | None = None
        self.control = bus.Router(context, bus.control_endpoint(config))
        self._open: list[bus.Pull | bus.Router | LinePort] = [self.control]

    def bind(self, config: Config) -> None:
        """Bind the sockets of an active server. Raises AlreadyRunning, ConfigError."""
        try:
            for host, port in (
                (own_server(config), config.appendice_server_port),
                (config.bipbip_commander_server, config.bipbip_commander_port),
                (config.greta_server, config.greta_port),
            ):
                if port:
                    self.requests.append(bus.Pull(self._context, host, port))
                    self._open.append(self.requests[-1])
            try:
                self.lines = LinePort(config.server_port, config.allowed_networks)
            except OSError as error:
                where = f"cannot listen on port {config.server_port} ({error.strerror})"
                raise AlreadyRunning(f"{where}: an Almighty process must be already started") from None
            self._open.append(self.lines)
        except OarError:
            self.close()
            raise

    def close(self) -> None:
        """Close all sockets."""
        for endpoint in self._open:
            endpoint.close()
        self._open.clear()


@dataclass(frozen=True, slots=True)
class _RoundWaiter:
    """A client that waits for the end of a scheduling pass, and the number of passes that had begun at its request."""

    sender: bytes
    rounds_begun: int


class Almighty:
    """The main loop of the server and its state."""

    def __init__(
        self,
        config: Config,
        sockets: Endpoints,
        children: list[ChildProgram],
        environment: Mapping[str, str],
        *,
        conf_file: str,
        orphan_patience: float,
        warden: Sequence[str] = WARDEN_ARGV,
    ) -> None:
        self._config = config
        self._conf_file = conf_file
        self._sockets = sockets
        self._environment = child_environment(environment, conf_file)
        self._warden = WardenProcess(warden, dict(self._environment))
        self._is_active = False
        self._standby: Standby | None = None
        self._return_reason = ""  #: why this server must become standby again
        self._manager = processes.ServiceManager(environment)
        self._poll = bus.Poll(sockets.control)
        self._children = Supervisor(children, self._environment, self._poll, self._send)
        self._automaton = Automaton(timing(config))
        self._mailer = Mailer(config)
        self._failure_mails = HourlyLimit(1)
        self._outage = DatabaseOutage(database_settings(config).servers)
        self._silence = ""  #: why the database does not answer the warden of an active server; '' if it does
        self._bad_messages = HourlyLimit(BAD_MESSAGES_LOGGED)
        self._restarts = RunnerRestarts(database_settings(config).servers, orphan_patience, self._are_several)
        self._log_file = config.log_file
        self._load = Load(0, 0)
        self._last_round: Mapping[str, Any] = {}  #: what the scheduler tells of it
        self._rounds = RoundJournal()
        self._energy_orders: deque[Energy] = deque(maxlen=MOST_ENERGY_ORDERS)
        self._waiters: list[_RoundWaiter] = []
        self._started = time.time()
        self._next_status = time.monotonic() + STATUS_PERIOD
        self._exit: int | None = None

    # -- the loop --

    def run(self, signals: processes.Signals) -> int:
        """Run until a stop signal, or until this server must become standby. Return the exit code, or ``AGAIN``."""
        self._poll.add(signals)
        self._restarts.first_start = time.monotonic()
        try:
            while not signals.stop and self._exit is None and not self._return_reason:
                self._turn(signals)
            self._stop(signals, KILL_SECONDS if self._return_reason else LONGEST_STOP)
        finally:
            self._children.close()
            self._warden.forget()
        if self._return_reason and not signals.stop:
            return AGAIN
        return ServerCode.STOPPED if self._exit is None else self._exit

    def _turn(self, signals: processes.Signals) -> None:
        self._receive(signals, self._patience())
        if signals.reload:
            signals.reload = False
            self._reload()
        now = time.monotonic()
        self._keep_warden(now)
        if self._is_active and not self._return_reason:
            self._work(now)
        self._sign_of_life(now)

    def _work(self, now: float) -> None:
        for end in self._children.tick(now):
            self._pass_ended(end, now)
        self._keep_runner(now)
        if self._restarts.is_ready:
            for start in self._automaton.due(now):
                self._children.give(start.module, start.disable, now, compare=start.compare)
        if self._sockets.lines:
            self._sockets.lines.expire(now)

    def _receive(self, signals: processes.Signals, patience: float) -> None:
        """Wait for messages, signals, ends of children and timers. Handle all messages that have arrived."""
        ready = self._poll.wait(patience)
        signals.clear()
        for source in ready:
            if isinstance(source, bus.Router):
                for sender, data in source.receive():
                    self._guarded(self._on_control, sender, data)
            elif source is self._warden.child:
                self._read_warden()
            elif isinstance(source, processes.ChildProcess):
                self._children.read(source)
            elif isinstance(source, bus.Pull):
                for data in source.receive():
                    self._guarded(self._on_request, data)
            elif isinstance(source, LinePort):
                for line in source.receive(time.monotonic()):
                    self._guarded(self._on_line, source, line)

    def _patience(self) -> float:
        now = time.monotonic()
        dates = [self._children.next_look(), now + 60.0, self._next_status]
        if self._sockets.lines and (expiry := self._sockets.lines.expire(now)):
            dates.append(expiry)
        if self._warden.child is None:
            dates.append(self._warden.next_start)
        if self._is_active and self._are_several:
            dates.append(self._warden.alive + SILENCE_SECONDS)
        if self._restarts.is_ready:
            dates.append(now + self._automaton.wait(now))
        if self._is_active and self._children.workers[RUNNER].state is State.DOWN:
            dates.append(self._restarts.next_start)
        if (word := self._restarts.next_word()) is not None:
            dates.append(word)
        if self._manager.watchdog_period is not None:
            dates.append(now + self._manager.watchdog_period)
        return max(0.0, min(dates) - now)

    def _guarded(self, handle: Callable[..., None], *arguments: object) -> None:
        """Handle a message. Log and drop an invalid one."""
        try:
            handle(*arguments)
        except BadFrame as error:
            if self._bad_messages.allows("bad message", time.monotonic()):
                log.info("refused: %s", error)
        except Exception:  # no message from outside may end the server
            if self._bad_messages.allows("broken off", time.monotonic()):
                log.exception("a message could not be treated")

    # -- messages --

    def _on_line(self, lines: LinePort, line: ReceivedLine) -> None:
        """Handle a line of the line port. The Runner answers an end report; other lines are answered with OK."""
        try:
            message = decode_tag(line.text)
        except BadFrame:
            lines.drop(line.peer)
            raise
        if isinstance(message, EndReport):
            report = EndReport(line.peer, message.job_id, message.code, message.status, message.challenge, message.ago)
            if not self._to_runner(report):
                lines.drop(line.peer)  # the node sends it again
            return
        self._treat(message)
        lines.answer(line.peer, ReportAnswer.OK)

    def _on_request(self, data: bytes) -> None:
        """Handle a tag, a job or an energy order from outside."""
        self._treat(decode_request(data))

    def _treat(self, message: EndReport | Effect) -> None:
        """Pass a message to the automaton, to the Runner or to Greta."""
        match message:
            case Wake(tag):
                self._automaton.on_tag(tag)
            case Due(date):
                self._automaton.on_deadline(time.monotonic() + (date - time.time()))
            case Energy(EnergyCommand.CHECK):
                self._automaton.on_energy()
            case Energy():
                self._to_greta(message)
            case Ask(JobAction.ENERGY) if self._automaton.timing.has_greta:
                self._automaton.on_energy()
            case _:
                self._to_runner(message)

    def _on_control(self, sender: bytes, data: bytes) -> None:
        """Handle a frame from a child, or from oarnotify on this host."""
        now = time.monotonic()
        match frames.decode(data):
            case Hello() as frame:
                self._children.hello(sender, frame, now)
                self._hand_over_energy_orders()
            case Done() as frame:
                self._children.done(sender, frame, now)
            case Pong():
                self._children.pong(sender)
            case At(queues):
                self._automaton.at(queues)
            case Ready() | Away() as frame:
                self._runner_begins(sender, frame)
            case Load() as frame:
                self._load = frame
            case ReportReply(peer, text):
                if self._sockets.lines:
                    self._sockets.lines.answer(peer, text)
            case Wake() | Ask() | Energy() | Due() as frame:
                self._treat(frame)
            case other:
                self._on_question(sender, other)

    def _on_question(self, sender: bytes, frame: Frame) -> None:
        """Handle a request of a command on this host."""
        match frame:
            case StatusQuestion():
                self._send(sender, Status(self.status(time.monotonic())))
            case RoundsQuestion(number):
                self._send(sender, RoundsAnswer({"rounds": self._rounds.last(number)}))
            case WaitForRound(tag):
                self._add_waiter(sender, tag)
            case LookAgain():
                self._warden.send_signal(signal.SIGHUP)
            case _:
                raise BadFrame(f"unexpected frame {type(frame).__name__}")

    def _send(self, receiver: bytes, frame: Frame) -> bool:
        return self._sockets.control.send(receiver, frames.encode(frame))

    def _to_runner(self, frame: Frame) -> bool:
        """Send a frame to the Runner. Return False if it is not running.

        The next Runner finds the work of a lost frame in the database.
        """
        identity = self._children.workers[RUNNER].identity
        return bool(identity) and self._send(identity, frame)

    def _to_greta(self, frame: Energy) -> None:
        """Send the order of a program of the site to Greta. Keep an order that arrives while she starts."""
        if not self._automaton.timing.has_greta:
            log.warning("Greta does not take %s %s: ENERGY_SAVING_INTERNAL is no", frame.command, " ".join(frame.nodes))
            return
        self._energy_orders.append(frame)
        self._hand_over_energy_orders()
        if self._energy_orders:
            self._automaton.on_energy()  # a pass starts her

    def _hand_over_energy_orders(self) -> None:
        greta = self._children.workers[Module.GRETA]
        while self._energy_orders and greta.identity and self._send(greta.identity, self._energy_orders[0]):
            self._energy_orders.popleft()

    def _add_waiter(self, sender: bytes, tag: str) -> None:
        if tag:
            self._treat(decode_tag(tag))
        self._waiters.append(_RoundWaiter(sender, self._automaton.rounds_begun))

    # -- the warden --

    @property
    def _are_several(self) -> bool:
        return len(self._config.server_hostnames) > 1

    def _keep_warden(self, now: float) -> None:
        """Start the warden. Without it, or without its report, an active server becomes standby."""
        child = self._warden.child
        if child is not None and (code := child.poll()) is not None:
            self._read_warden()
            self._poll.remove(child)
            self._warden.forget()
            log.error("the warden has ended (%s)", processes.describe_exit(code))
            if self._is_active:
                self._return_reason = self._return_reason or "its warden has ended"
            elif end := self._restarts.end_after(WARDEN, code):
                self._end(end)
        elif child is None and now >= self._warden.next_start:
            self._poll.add(self._warden.start(now))
        if self._is_active and self._are_several and now > self._warden.alive + SILENCE_SECONDS:
            self._return_reason = f"PostgreSQL has not answered for {SILENCE_SECONDS:.0f} s"
        if end := self._restarts.end_of_wait(now):
            self._end(end)

    def _read_warden(self) -> None:
        reports, lines = self._warden.read()
        for line in lines:
            log.info("%s: %s", WARDEN, line)
        for report in reports:
            self._on_report(report)

    def _on_report(self, report: Frame) -> None:
        """Handle a report of the warden."""
        match report:
            case Active() if not self._is_active:
                self._become_active(report)
            case Standby():
                self._stand_by(report)
            case Away(reason):
                self._silence = reason
                self._database_is_away(reason)
            case Alive(sent):
                self._silence = ""
                self._warden.alive = sent / 1000
            case Lost(reason) if self._is_active:
                self._return_reason = reason
            case _:
                log.warning("unexpected report of the warden: %s", report)

    def _stand_by(self, report: Standby) -> None:
        """Wait for the lock. If there is only one server, another process that holds it must end soon."""
        if not self._are_several:
            self._restarts.locked_out_since = self._restarts.locked_out_since or time.monotonic()
            log.warning("another process holds the server lock: %s", report.holder)
            return
        self._standby, self._restarts.is_standby = report, True
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(report.since))
        log.info("standby for %s since %s", report.holder or "no server", since)
        self._manager.status(f"standby for {report.holder or 'no server'} since {since}")
        self._manager.ready()

    def _become_active(self, report: Active) -> None:
        """Bind the endpoints, and start what an active server runs. Raises AlreadyRunning, ConfigError."""
        log.info("this server is active, generation %d", report.generation)
        now = time.monotonic()
        self._is_active = True
        self._environment[runtime.GENERATION] = str(report.generation)
        self._restarts.is_standby, self._restarts.is_away, self._restarts.locked_out_since = False, False, None
        self._restarts.first_start = self._warden.alive = now
        self._sockets.bind(self._config)
        for source in (*self._sockets.requests, self._sockets.lines):
            if source:
                self._poll.add(source)
        if report.former:
            text = f"{own_server(self._config)} has taken over from {report.former}: {report.reason}"
            log.warning("%s", text)
            self._mailer.administrators("The OAR server has changed", f"{text}.")

    # -- passes and children --

    def _pass_ended(self, end: PassEnd, now: float) -> None:
        if end.name == RUNNER:
            return
        module = Module(end.name)
        hint = None if end.next is None else now + (end.next - time.time())
        self._automaton.on_exit(module, end.code, now, hint, end.starts)
        self._last_round = end.record or self._last_round
        if module is Module.META_SCHED:
            duration = self._automaton.records[module].duration
            self._rounds.note(end.code, end.starts, end.record, duration=duration, ended=time.time())
        is_unavailable = end.code == UNAVAILABLE
        if end.code is not None:
            self._mail_outage(self._outage.note_pass(now, is_unavailable=is_unavailable))
        if end.code is None or (module, end.code) not in NEXT_MODULES:
            error = end.error or ("the database cannot be used" if is_unavailable else f"it ended with code {end.code}")
            log.error("module %s failed: %s", module, error)
            if not is_unavailable and self._failure_mails.allows(module, time.monotonic()):
                self._mailer.administrators(f"Module {logs.camel_case(module)} failed", error)
            self._children.retire(module, "", now)
        elif module is Module.META_SCHED:
            served = [waiter for waiter in self._waiters if waiter.rounds_begun < self._automaton.rounds_begun]
            self._waiters = [waiter for waiter in self._waiters if waiter not in served]
            for waiter in served:
                self._send(waiter.sender, Waited(end.code))

    def _mail_outage(self, mail: OutageMail | None) -> None:
        if mail is not None:
            self._mailer.administrators(mail.subject, mail.text)

    def _keep_runner(self, now: float) -> None:
        """Start the Runner, and restart it whenever it ends. The modules start when it is ready."""
        worker = self._children.workers[RUNNER]
        if worker.state is not State.DOWN:
            return
        if self._sockets.lines:
            self._sockets.lines.drop_unanswered()
        if now < self._restarts.next_start:
            return
        if worker.starts and (end := self._restarts.end_after("Runner", worker.last_code)):
            self._end(end)
        else:
            if worker.starts and worker.last_code == ServerCode.DATABASE:
                self._database_is_away(self._restarts.reason)
            self._restarts.note_start(now)
            self._children.start(RUNNER, now)

    def _end(self, end: ServerEnd) -> None:
        self._exit = end.code
        log.error("%s", end.reason)
        # Print the reason on standard error too, for administrators who do not read the log; the log has more details.
        sys.stderr.write(f"[ERROR] {end.reason}; see {self._log_file}\n")

    def _runner_begins(self, sender: bytes, frame: Ready | Away) -> None:
        if isinstance(frame, Away):
            self._database_is_away(frame.reason)
            return
        if self._children.of(sender) is not self._children.workers[RUNNER]:
            raise BadFrame("a process other than the Runner reports that it is ready")
        if not self._restarts.note_ready():
            return
        now = time.monotonic()
        for module in Module:
            if module is not Module.GRETA or self._automaton.timing.has_greta:
                self._children.start(module, now)
        self._automaton.start()
        self._manager.ready()
        self._manager.status("up")
        log.info("OAR server %s is up", VERSION)
        self._mailer.administrators("Start OAR server", f"The OAR server {VERSION} has started.")

    def _database_is_away(self, reason: str) -> None:
        """Report the wait for the database at once, and report readiness, so that systemctl does not block."""
        if self._restarts.is_ready:
            return
        self._restarts.reason, self._restarts.is_away = reason, True
        self._manager.status(self._restarts.wait)
        self._manager.ready()

    # -- status and configuration --

    def status(self, now: float) -> dict[str, Any]:
        """Return the record that ``oarnotify --status`` displays."""
        role = ServerRole.ACTIVE if self._is_active else ServerRole.STANDBY
        return {"role": role.value} | server_status(
            self._automaton,
            self._children,
            self._load,
            self._last_round,
            restarts=self._restarts,
            silence=self._silence,
            start=int(self._started),
            now=now,
        )

    def _sign_of_life(self, now: float) -> None:
        if self._manager.watchdog_period is not None:
            self._manager.alive()
        self._mail_outage(self._outage.due_mail(now, time.time()))
        if word := self._restarts.word(now):
            log.warning("%s", word)
            self._manager.status(word)
        if now >= self._next_status:
            self._next_status = now + STATUS_PERIOD
            log.info("status: %s", self.status(now))
            busy = [module for module in self._automaton.running.values() if module is not None]
            self._manager.status(f"running: {', '.join(busy) or 'nothing'}")

    def _reload(self) -> None:
        """Reload oar.conf. If it has errors, keep the old configuration."""
        try:
            parsed = runtime.read_config(self._conf_file)
            problems = [str(problem) for problem in parsed.errors]
        except ConfigError as error:
            problems = [str(error)]
        if problems:
            text = f"the configuration was not read again: {'; '.join(problems)}"
            log.error("%s", text)
            self._manager.status(text)
            self._mailer.administrators("Bad configuration", "\n".join(["The old values stay.", *problems]))
            return
        self._automaton.follow(timing(parsed.config))
        self._automaton.on_tag(Tag.SCHEDULING)  # a scheduling pass stores the keys that commands on frontends need
        self._warden.send_signal(signal.SIGHUP)
        if not parsed.config.energy_saving_internal:
            self._children.retire(Module.GRETA, "", time.monotonic())
        self._mailer.close(1)
        self._mailer = Mailer(parsed.config)
        logs.set_up(parsed.config, "Almighty")
        self._manager.status("the configuration was read again")
        log.info("the configuration was read again; addresses and ports need a restart")

    # -- the end --

    def _stop(self, signals: processes.Signals, longest: float) -> None:
        """End the children: passes soon, the Runner's actions at their next safe point. Kill those that remain.

        The warden ends last, so that no other server is active before.
        """
        if self._return_reason:
            log.warning("this server becomes standby: %s", self._return_reason)
        else:
            self._manager.stopping()
            log.info("the OAR server stops")
        begin = time.monotonic()
        for source in (*self._sockets.requests, self._sockets.lines):
            if source:
                self._poll.remove(source)
        self._children.stop_all(begin)
        while not self._children.are_down() and (now := time.monotonic()) < begin + longest:
            self._receive(signals, 0.5)
            self._children.tick(now)
            if now > begin + PASS_TO_END:
                for module in Module:
                    self._children.retire(module, "its pass takes too long for a stop", now, signal.SIGKILL)
        self._children.end_all()
        self._stop_warden(signals, min(begin + longest + 1, time.monotonic() + WARDEN_TO_END))
        if self._exit is None and not self._return_reason:
            self._mailer.administrators("Stop OAR server", f"The OAR server {VERSION} has stopped.")
        self._mailer.close(5)

    def _stop_warden(self, signals: processes.Signals, end: float) -> None:
        """Let the warden release the lock."""
        self._warden.send_signal(signal.SIGTERM)
        while (child := self._warden.child) and child.poll() is None and (now := time.monotonic()) < end:
            self._poll.wait(end - now)
            signals.clear()
            child.read()


# -- the program ------------------------------------------------------------------------------------------------------


def lock_pid_file(config: Config) -> processes.PidFile:
    """Lock the pid file: only one server may run on a machine. Raises AlreadyRunning, ConfigError."""
    directory = Path(config.oar_run_dir)
    file = processes.PidFile(directory / processes.PID_FILE)
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
    children: list[ChildProgram],
    *,
    orphan_patience: float = ORPHAN_PATIENCE,
    warden: Sequence[str] = WARDEN_ARGV,
) -> int:
    """Run the server until a signal ends it. Return the exit code. Raises AlreadyRunning, ConfigError."""
    own_server(config)
    os.umask(0o022)
    with processes.signals() as signals:  # first: a process that reads the pid file may send a signal
        pid_file = lock_pid_file(config)
        try:
            with bus.opened() as context, closing(Endpoints(context, config)) as sockets:
                almighty = Almighty(
                    config,
                    sockets,
                    children,
                    environment,
                    conf_file=conf_file,
                    orphan_patience=orphan_patience,
                    warden=warden,
                )
                code = almighty.run(signals)
            if code == AGAIN:
                processes.hold_signals()
                if not signals.stop:
                    pid_file.keep_over_exec()
                    os.execv(sys.executable, sys.orig_argv)
            return ServerCode.STOPPED if code == AGAIN else code
        finally:
            pid_file.release()


def main() -> int:
    conf_file = runtime.conf_file()
    try:
        parsed = runtime.read_config(conf_file)
    except ConfigError as error:
        sys.stderr.write(f"[ERROR] {error}\n")
        return ServerCode.CONFIGURATION
    for problem in (*parsed.warnings, *parsed.errors):
        sys.stderr.write(f"{'[ERROR]' if problem in parsed.errors else 'Warning:'} {problem}\n")
    if parsed.errors:
        return ServerCode.CONFIGURATION
    config = parsed.config
    children = programs(config, bus.control_endpoint(config), os.environ.get("OARDIR", DEFAULT_OARDIR))
    with logs.logging_to(config, "Almighty"):
        for problem in parsed.warnings:
            log.warning("%s", problem)
        try:
            return serve(config, conf_file, os.environ, children)
        except OarError as error:
            log.error("%s%s", processes.OWN_END, error)
            sys.stderr.write(f"[ERROR] {error}\n")
            return error.exit_code


if __name__ == "__main__":
    sys.exit(main())

"""The Runner: gives the actions on jobs to its bipbips, takes the end reports of nodes, tells users.

Its list is the database; what it holds in memory is a copy that it makes again at each look.  A doorbell (``Ask``)
only says which job to look at.  A report is answered after its commit, so that oarexec may forget it (server.md 4.3,
5.6).
"""

import contextlib
import hmac
import logging
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Sequence

from oar.lib import bus, frames, logs, process, recovery, runtime
from oar.lib.db.engine import SERVER_LOCK, Lock, Transaction
from oar.lib.db.runs import AwaitedReport
from oar.lib.errors import BadRequest, DatabaseUnavailable
from oar.lib.frames import Answer, BadFrame, Frame, Hello, Load, Ping, Pong, Ready, Report, Stop
from oar.lib.messages import Ask, Effect, JobAction, Mail, Notice, Tag, Wake
from oar.lib.notices import Subscription, mail_subject, parse_subscription
from oar.lib.notify import Mailer
from oar.lib.runtime import Runtime
from oar.lib.states import EventType, ExecCode, JobState
from oar.lib.version import VERSION
from oar.modules import orders
from oar.modules.actions.finish import note_finishing
from oar.modules.actions.power import ENERGY_ORDERS
from oar.modules.array_mails import ArrayMails
from oar.modules.dispatch import ASKED, HOSTS_ASKED, Action, Dispatch, Kind, host_action, wanted
from oar.modules.orders import Did, Do, Interrupt

log = logging.getLogger("runner")

LOOK_SECONDS = 5.0
#: A job whose action broke off so often is ended (server.md 5.6).
DEATHS = 5
#: After Stop, running actions get so long to reach a safe point; less when the server has died, since the next one
#: waits for this process to go.
DRAIN_SECONDS = 30.0
ORPHAN_SECONDS = 4.0
#: A bipbip that was told to end has so long to do so.
LAST_SECONDS = 4.0
LOAD_SECONDS = 10.0
#: A wrong challenge is noted at most once per job in this time.
CHALLENGE_SECONDS = 60.0
#: A kill request that nobody has treated is rung for again after this time.
STALE_KILL_SECONDS = 10
BAD_SCHEMA = NOT_CONFIGURED = 1
NO_DATABASE = 3
ALREADY_RUNNING = 4
#: States in which an end report is awaited.
AWAITED = (JobState.LAUNCHING, JobState.RUNNING, JobState.SUSPENDED, JobState.RESUMING)


class BipbipProcess:
    """A bipbip and the pipes to it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-m", "oar.modules.bipbip", "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin
        self._answers = self._process.stdout
        os.set_blocking(self._answers.fileno(), False)
        self._partial = b""
        self._patience = 0.0

    def fileno(self) -> int:
        """Readable when it has answered, or is gone."""
        return self._answers.fileno()

    def write(self, order: orders.Order) -> bool:
        """Give it an order; False if it does not read any more."""
        try:
            self._requests.write(orders.encode(order))
            self._requests.flush()
        except OSError:
            return False
        return True

    def read(self) -> tuple[list[orders.Order], bool]:
        """Return what it has written, and whether it is still there."""
        data = self._answers.read(1 << 20)
        if data is None:
            return [], True
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [orders.decode(line) for line in lines], data != b""

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def end(self) -> None:
        """Tell it to end: there will be no more orders."""
        with contextlib.suppress(OSError):  # it was gone before it had read everything
            self._requests.close()

    def close(self) -> None:
        """Let it end, or kill it; reap it."""
        self.end()
        try:
            self._process.wait(LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()


class Runner:
    """The loop and what it holds."""

    def __init__(self, runtime_: Runtime, dealer: bus.Dealer, lock: Lock) -> None:
        config = runtime_.config
        self._runtime = runtime_
        self._database = runtime_.database
        self._database.deliver = self._deliver
        self._dealer = dealer
        self._lock = lock
        self._dispatch = Dispatch(config.max_concurrent_jobs_starting_or_terminating, config.bipbip_workers)
        self._mailer = Mailer(config)
        self._array_mails = ArrayMails(runtime_.database)
        self._bipbips: dict[int, BipbipProcess] = {}
        self._poll = bus.Poll(dealer)
        self._reports: list[Report] = []
        self._asked: list[Ask] = []
        self._wrong: dict[int, float] = {}
        self._started = 0  #: database clock at the start: what was not heard of since is probed
        self._next_look = 0.0
        self._next_load = 0.0
        self._draining: float | None = None
        self._parent: process.ParentWatch | None = None

    # -- the loop ------------------------------------------------------------------------------------------------

    def run(self, signals: process.Signals, parent: process.ParentWatch | None) -> int:
        """Work until told to stop."""
        self._poll.add(signals)
        self._parent = parent
        if parent:
            self._poll.add(parent)
        for number in range(self._dispatch.workers):
            self._start(number)
        self._tell(Ready())
        while not self._is_over(signals):
            if self._turn(signals):
                log.error("another OAR server has taken over: %s", self._database.holder(SERVER_LOCK))
                return ALREADY_RUNNING
        for bipbip in self._bipbips.values():
            bipbip.end()
        for bipbip in self._bipbips.values():
            bipbip.close()
        self._mailer.close(5)
        return 0

    def _is_over(self, signals: process.Signals) -> bool:
        if self._draining is None and signals.stop:
            self._draining = time.monotonic() + DRAIN_SECONDS
        if self._parent is not None and self._parent.is_gone():
            self._poll.remove(self._parent)
            self._parent = None
            self._draining = min(self._draining or float("inf"), time.monotonic() + ORPHAN_SECONDS)
        busy = any(action.kind is not Kind.NOTICE for action in self._dispatch.running)
        return self._draining is not None and (not busy or time.monotonic() > self._draining)

    def _turn(self, signals: process.Signals) -> bool:
        """Wait for something, take it in, give out what is due; True if another server has the lock."""
        for source in self._poll.wait(self._patience()):
            if source is self._dealer:
                for data in self._dealer.receive():
                    self._read(data)
            elif isinstance(source, BipbipProcess):
                self._hear(source)
            elif source is signals:
                signals.clear()
        try:
            self._intake()
            self._follow_doorbells()
            if time.monotonic() >= self._next_look:
                if not self._lock.take():
                    return True
                self._follow_configuration()
                self._look()
                self._next_look = time.monotonic() + LOOK_SECONDS
        except DatabaseUnavailable as error:
            log.error("the database cannot be reached: %s", error)
            self._next_look = time.monotonic() + LOOK_SECONDS
        self._give_out()
        self._report_load()
        return False

    def _patience(self) -> float:
        now = time.monotonic()
        times = [self._next_look, self._next_load, self._dispatch.next_due()]
        return max(0.0, min((one for one in times if one is not None), default=now + LOOK_SECONDS) - now)

    def _read(self, data: bytes) -> None:
        try:
            self._take(frames.decode(data))
        except BadFrame as error:
            log.warning("bad frame from the server: %s", error)

    def _take(self, frame: Frame) -> None:
        match frame:
            case Ask():
                self._asked.append(frame)
            case Report():
                self._reports.append(frame)
            case Notice():
                self._notice(frame)
            case Mail(subject, text):
                log.warning("%s: %s", subject, text.strip().replace("\n", "; "))
                self._mailer.administrators(subject, text)
            case Ping():
                self._tell(Pong())
            case Stop():
                self._draining = time.monotonic() + DRAIN_SECONDS
            case _:
                log.warning("unexpected frame %s", frame)

    def _tell(self, frame: Frame) -> None:
        self._dealer.send(frames.encode(frame))

    def _deliver(self, effects: Sequence[Effect]) -> None:
        """Keep what the Runner itself does; pass the rest to Almighty."""
        for effect in effects:
            if isinstance(effect, Ask | Notice | Mail):
                self._take(effect)
            else:
                self._tell(effect)

    def _report_load(self) -> None:
        now = time.monotonic()
        if now >= self._next_load:
            self._next_load = now + LOAD_SECONDS
            running = len(self._dispatch.running)
            self._tell(Load(len(self._dispatch) - running, running))

    # -- what is to be done ----------------------------------------------------------------------------------------

    def _follow_doorbells(self) -> None:
        """Look at the jobs that somebody rang for; do what is asked by name."""
        if not self._asked:
            return
        asked, self._asked = self._asked, []
        try:
            self._want_all(asked)
        except DatabaseUnavailable:
            self._asked = asked + self._asked
            raise

    def _want_all(self, asked: Collection[Ask]) -> None:
        ids = {one.job_id for one in asked if one.job_id}
        with self._database.begin() as tx:
            known = {one.job_id: one for one in tx.runs.in_hand(ids)} if ids else {}
            told = [one.job_id for one in asked if one.action is JobAction.TELL]
            owners = tx.jobs.owners(told) if told else {}
        for ask in dict.fromkeys(asked):
            if ask.action in HOSTS_ASKED:
                self._want(host_action(HOSTS_ASKED[ask.action], host) for host in ask.lines)
            elif ask.action is JobAction.ENERGY:
                self._want([Action(Kind.ENERGY)])
            elif ask.action is JobAction.HEAL:
                self._want([Action(Kind.HEAL, args=ask.lines)])
            elif ask.action is JobAction.TELL:
                self._want([Action(Kind.TELL, ask.job_id, args=ask.lines, user=owners.get(ask.job_id, ""))])
            elif ask.job_id in known:
                one = known[ask.job_id]
                kind = ASKED.get(ask.action)
                action = Action(kind, one.job_id, one.head_host) if kind else wanted(one, 0)
                self._want([action] if action else [])

    def _follow_configuration(self) -> None:
        """Take over what oar.conf says now; a bad one changes nothing.  Bipbips look for themselves."""
        config = self._runtime.changed_config()
        if config is None:
            return
        self._runtime.config = config
        self._mailer.close(0)  # what waits in it is sent all the same
        self._mailer = Mailer(config)
        logs.set_up(config, "Runner")
        log.info("the configuration was read again")

    def _look(self) -> None:
        """Find in the database what is to be done, whoever rang or did not."""
        config = self._runtime.config
        with self._database.begin() as tx:
            # What was asked while no server was there has waited long enough.
            stale = tx.now - STALE_KILL_SECONDS if self._started else tx.now + 1
            self._started = self._started or tx.now
            every = config.job_probe_frequency
            probe_before = max(self._started, tx.now - every) if every else self._started
            found = tx.runs.in_hand(probe_before=probe_before)
            live = tx.runs.live()
            signals = tx.runs.signal_requests(tx.now - config.oar_ssh_connection_timeout)
            sweeps = tx.resources.to_sweep()
            has_orders = bool(tx.events.open(ENERGY_ORDERS))
            if tx.runs.stale_kills(stale):
                tx.outbox.append(Wake(Tag.QDEL))
        self._dispatch.forget_jobs(live)
        self._want(action for one in found if (action := wanted(one, probe_before)))
        heads = {one.job_id: one.head_host for one in found}
        self._want(Action(Kind.SIGNAL, one.job_id, heads.get(one.job_id, "")) for one in signals)
        self._want(host_action(Kind.SWEEP, host) for host in sweeps)
        self._want([Action(Kind.ENERGY)] if has_orders else [])

    def _want(self, actions: Iterable[Action]) -> None:
        for action in actions:
            self._dispatch.want(action)
            for worker, launch in self._dispatch.interrupted_by(action):
                self._bipbips[worker].write(Interrupt(launch.job_id))

    # -- bipbips ---------------------------------------------------------------------------------------------------

    def _start(self, number: int) -> None:
        self._bipbips[number] = BipbipProcess(number)
        self._poll.add(self._bipbips[number])

    def _give_out(self) -> None:
        if self._draining is not None:
            return
        now = time.monotonic()
        for number, action in self._dispatch.due(now):
            if not self._bipbips[number].write(Do(action)):
                self._bipbips[number].kill()  # its end is heard of in the next turn
        for number, action in self._dispatch.older_than(self._runtime.config.bipbip_max_duration, now):
            logs.of_job(log, action.job_id).error("%s takes too long: its bipbip is killed", action.kind)
            self._bipbips[number].kill()

    def _hear(self, bipbip: BipbipProcess) -> None:
        answers, is_there = bipbip.read()
        for answer in answers:
            match answer:
                case Did(action, _, True):
                    self._broke_off(action)
                case Did(action, again, _):
                    self._dispatch.done(action, time.monotonic(), again)
                case Do() | Interrupt():
                    log.warning("unexpected answer %s", answer)
                case effect:
                    self._deliver([effect])
        if not is_there:
            self._lost(bipbip)

    def _lost(self, bipbip: BipbipProcess) -> None:
        """Replace a bipbip that is gone; what it did is done again."""
        self._poll.remove(bipbip)
        bipbip.close()
        if self._draining is None:
            log.error("bipbip %d is gone: it is replaced", bipbip.number)
            self._start(bipbip.number)
        for action in self._dispatch.of_worker(bipbip.number):
            self._broke_off(action)

    def _broke_off(self, action: Action) -> None:
        failures = self._dispatch.failed(action, time.monotonic())
        if failures < DEATHS or action.kind not in (Kind.LAUNCH, Kind.END):
            return
        logs.of_job(log, action.job_id).error("%s broke off %d times: the job is given up", action.kind, failures)
        self._dispatch.give_up(action)
        try:
            with self._database.begin() as tx:
                _give_up(tx, action.job_id)
        except DatabaseUnavailable as error:  # the next look finds the job again
            log.error("the database cannot be reached: %s", error)

    # -- reports of nodes ------------------------------------------------------------------------------------------

    def _intake(self) -> None:
        """Store the end reports that have come, all in one transaction; then answer."""
        if not self._reports:
            return
        reports, self._reports = self._reports, []
        try:
            with self._database.begin() as tx:
                answers = self._judge(tx, reports)
        except DatabaseUnavailable:
            return  # not answered: oarexec comes again
        for report, text in zip(reports, answers, strict=True):
            if report.peer >= 0:
                self._tell(Answer(report.peer, text))

    def _judge(self, tx: Transaction, reports: Sequence[Report]) -> list[str]:
        awaited = tx.runs.awaited_reports({report.job_id for report in reports})
        answers = []
        for report in reports:
            answer = verdict(awaited.get(report.job_id), report)
            if answer == "OK":
                self._note(tx, report)
            elif answer == "KO":
                self._note_wrong_challenge(tx, report.job_id)
            answers.append(answer)
        return answers

    def _note(self, tx: Transaction, report: Report) -> None:
        status = None if report.status == "N" else int(report.status)
        if tx.runs.report(report.job_id, report.code, status):
            note_finishing(tx, report.job_id, report.code, status)
            tx.outbox.append(Ask(JobAction.END, report.job_id))

    def _note_wrong_challenge(self, tx: Transaction, job_id: int) -> None:
        now = time.monotonic()
        if now - self._wrong.get(job_id, -CHALLENGE_SECONDS) >= CHALLENGE_SECONDS:
            self._wrong[job_id] = now
            text = f"[Runner] an end report of the job {job_id} came with a wrong challenge"
            tx.events.add(EventType.BIPBIP_CHALLENGE, job_id, text)

    # -- notices ---------------------------------------------------------------------------------------------------

    def _notice(self, notice: Notice) -> None:
        """Mail the owner of a job, or let his command be run."""
        try:
            wish = parse_subscription(notice.notify)
            if wish.way == "exec":
                self._let_run(notice, wish)
                return
            for mail in [notice] if wish.is_each else self._array_mails.instead_of(notice):
                self._mail(mail, wish)
        except (BadRequest, DatabaseUnavailable) as error:
            logs.of_job(log, notice.job_id).warning("the notice %s is not sent: %s", notice.tag, error)

    def _let_run(self, notice: Notice, wish: Subscription) -> None:
        if not wish.wants(notice.tag):
            return
        about = (str(notice.job_id), notice.job_name, notice.tag, notice.text)
        args = (notice.user, notice.host, notice.tag, *wish.targets, *about)
        if self._dispatch.want(Action(Kind.NOTICE, notice.job_id, notice.host, args)):
            return
        with self._database.begin() as tx:
            text = f"[{notice.tag}] {wish.targets[0]} on {notice.host}: too many commands are waiting"
            tx.events.add(EventType.USER_EXEC_NOTIFICATION_ERROR, notice.job_id, text)

    def _mail(self, notice: Notice, wish: Subscription) -> None:
        if wish.wants(notice.tag):
            subject = mail_subject(notice.tag, notice.job_id, notice.job_name, self._mailer.instance)
            text = f"{notice.text}\n\n{notice.why}" if notice.why else notice.text
            self._mailer.user(wish.targets, subject, text, lambda problem: self._mailed(notice, problem), notice.user)

    def _mailed(self, notice: Notice, problem: str) -> None:
        """Note whether a mail went out (called by the mailer's thread)."""
        event = EventType.MAIL_NOTIFICATION_ERROR if problem else EventType.USER_MAIL_NOTIFICATION
        text = f"[{notice.tag}] {notice.notify}" + (f": {problem}" if problem else "")
        try:
            with self._database.begin() as tx:
                tx.events.add(event, notice.job_id, text)
        except DatabaseUnavailable as error:
            logs.of_job(log, notice.job_id).warning("a mail cannot be noted: %s", error)


def verdict(awaited: AwaitedReport | None, report: Report) -> str:
    """Return the answer to an end report: OK, GONE or KO (server.md 4.3)."""
    if awaited is None or awaited.state not in AWAITED:
        return "GONE"
    if awaited.challenge and hmac.compare_digest(awaited.challenge, report.challenge):
        return "OK"
    return "KO"


def _give_up(tx: Transaction, job_id: int) -> None:
    """End a job on which our own programs break."""
    text = f"[Runner] internal error: the actions on the job {job_id} broke off {DEATHS} times"
    tx.runs.report(job_id, ExecCode.DIED, None)
    note_finishing(tx, job_id, ExecCode.DIED, None)
    tx.events.add(EventType.EXIT_VALUE_OAREXEC, job_id, text, to_check=True)
    tx.outbox.append(Wake(Tag.CHSTATE))


def serve(opened: Runtime, endpoint: str) -> int:
    """Be the Runner; exit code 4 if another server is running, 1 if the schema is not ours."""
    with opened.database.snapshot() as tx:
        version = tx.schema_version()
    if version != VERSION:
        log.error("the database has the schema %s, this is OAR %s: run oar-database --setup", version, VERSION)
        return BAD_SCHEMA
    with bus.connected(endpoint) as dealer, opened.database.sole(SERVER_LOCK) as lock:
        if lock is None:
            log.error("another OAR server is running: %s", opened.database.holder(SERVER_LOCK))
            return ALREADY_RUNNING
        if not _has_rules(opened):
            log.error("no admission rule is enabled: anybody could use the admin queue. Add the rules again, or set")
            log.error("ADMISSION_RULES_ACK_EMPTY=yes in oar.conf if that is meant")
            return NOT_CONFIGURED
        dealer.send(frames.encode(Hello("bipbip_commander", os.getpid())))
        with process.signals() as signals:
            runner = Runner(opened, dealer, lock)
            with opened.database.begin() as tx:
                recovery.repair(tx)
            return runner.run(signals, process.watch_parent(os.environ))


def _has_rules(opened: Runtime) -> bool:
    """Whether submissions are checked by some rule, or the administrator has said that they need not be."""
    config = opened.config
    if config.admission_rules_ack_empty or config.admission_rules_in_files:
        return True
    with opened.database.snapshot() as tx:
        return bool(tx.queues.rules(enabled=True))


def main() -> None:
    """Run as a program: ``--worker ENDPOINT``."""
    if sys.argv[1:2] != ["--worker"] or len(sys.argv) != 3:
        sys.stderr.write("oar-bipbip-commander is started by oar-almighty\n")
        sys.exit(2)
    opened = runtime.open_runtime("bipbip_commander")
    with logs.logging_to(opened.config, "Runner"):
        try:
            code = serve(opened, sys.argv[2])
        except DatabaseUnavailable as error:
            log.error("the database cannot be reached: %s", error)
            code = NO_DATABASE
    sys.exit(code)


if __name__ == "__main__":
    main()

"""The Runner: dispatch the actions on jobs to its bipbips, store the end reports of nodes, send notices to users.

The database is the list of actions; the copy in memory is rebuilt periodically. A doorbell (``Ask``) only names a job
to check. A report is answered after its commit, so that oarexec may then delete it.

See docs/design/launch.rst, "Actions", and docs/design/bus.rst, "End reports".
"""

import logging
import os
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from oar.lib import logs, runtime
from oar.lib.base import processes
from oar.lib.base.errors import DatabaseRefused, DatabaseUnavailable, DatabaseWithoutRoom
from oar.lib.base.version import explain_schema_mismatch
from oar.lib.bus import frames, sockets
from oar.lib.bus.exit_codes import ServerCode
from oar.lib.bus.frames import Away, BadFrame, EndReport, Frame, Hello, Load, Ping, Pong, Ready, ReportReply, StopChild
from oar.lib.bus.messages import Ask, Effect, JobAction, Tag, Wake, announcements
from oar.lib.db.connections import use_own_waits
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_types import EventType
from oar.lib.jobs import launch_holds, recovery, retention
from oar.lib.jobs.ends import ExecCode
from oar.lib.jobs.sql_runs import InHand
from oar.lib.nodes.energy import ENERGY_ORDERS
from oar.lib.reservations import repairs as reservation_repairs
from oar.lib.runtime import Runtime
from oar.modules.runner import restored_database
from oar.modules.runner.actions import launch_needs
from oar.modules.runner.actions.finish import note_finishing
from oar.modules.runner.bipbip_pipe import ActionEnded, BipbipProcess, InterruptLaunch, RunAction, WatchNodes
from oar.modules.runner.dispatch import (
    HOST_ACTIONS,
    JOB_ACTIONS,
    SCRIPT_KINDS,
    Action,
    ActionKind,
    Dispatch,
    host_action,
    next_action,
)
from oar.modules.runner.end_reports import EndReports
from oar.modules.runner.user_notices import UserNotices
from oar.modules.runner.watched_nodes import WatchedNodes

log = logging.getLogger("runner")

LOOK_SECONDS = 5.0
#: A job whose action failed so often is ended (docs/design/launch.rst, "Actions").
MAX_FAILURES = 5
#: After Stop, running actions get so long to reach a safe point; less when the server has died.
DRAIN_SECONDS = 30.0
ORPHAN_SECONDS = 4.0
#: It ends so long after the server at the latest, though PostgreSQL lets it wait for rows that somebody has locked.
LONGEST_ORPHAN = 12.0
LOAD_SECONDS = 10.0
#: Old files of desktop computing are looked for so often.
EXPIRY_SECONDS = 3600.0
#: A bipbip stores soon that a command runs; if it has not within this time, the node is asked.
START_NOTE_SECONDS = 5
#: Leon is woken again for a kill request that it has not treated within this time.
STALE_KILL_SECONDS = 10


class Runner:
    """The main loop of the Runner and its state."""

    def __init__(self, runtime_: Runtime, dealer: sockets.Dealer) -> None:
        config = runtime_.config
        self._runtime = runtime_
        self._database = runtime_.database
        self._database.deliver = self._deliver
        self._dealer = dealer
        self._dispatch = Dispatch(config.max_concurrent_jobs_starting_or_terminating, config.bipbip_workers)
        self._notices = UserNotices(config, runtime_.database, self._dispatch.add)
        self._end_reports = EndReports()
        self._launch_needs = launch_needs.LaunchNeedsWatch()
        self._has_messages = True  #: the outbox may have new messages
        self._bipbips: dict[int, BipbipProcess] = {}
        self._poll = sockets.Poll(dealer)
        self._reports: list[EndReport] = []  #: that have come and are not stored
        self._doorbells: list[Ask] = []  #: that have come and are not treated
        self._started = 0  #: database clock at the start: jobs without news since then are probed
        self._next_look = 0.0
        self._next_load = 0.0
        self._next_expiry = 0.0
        self._watched_nodes = WatchedNodes(runtime_.database)
        #: Of each bipbip, the list of nodes for which it was last informed, and those of them that it watches.
        self._watched: dict[int, tuple[list[str], tuple[str, ...]]] = {}
        self._draining: float | None = None
        self._parent: processes.ParentWatch | None = None

    # -- the loop ------------------------------------------------------------------------------------------------

    def run(self, signals: processes.Signals, parent: processes.ParentWatch | None) -> int:
        """Run until a stop request. Return the exit code."""
        self._poll.add(signals)
        self._parent = parent
        if parent:
            self._poll.add(parent)
        for number in range(self._dispatch.workers):
            self._start(number)
        self._tell(Ready())
        while not self._is_over(signals):
            self._turn(signals)
        for bipbip in self._bipbips.values():
            bipbip.end()
        for bipbip in self._bipbips.values():
            bipbip.close()
        self._notices.close(5)
        return 0

    def _is_over(self, signals: processes.Signals) -> bool:
        if self._draining is None and signals.stop:
            self._draining = time.monotonic() + DRAIN_SECONDS
        if self._parent is not None and self._parent.is_gone():
            self._poll.remove(self._parent)
            self._parent = None
            self._draining = min(self._draining or float("inf"), time.monotonic() + ORPHAN_SECONDS)
        busy = any(action.kind not in SCRIPT_KINDS for action in self._dispatch.running)
        return self._draining is not None and (not busy or time.monotonic() > self._draining)

    def _turn(self, signals: processes.Signals) -> None:
        """Wait for messages, handle them, and start the due actions."""
        due = [self._next_look, self._next_load, self._dispatch.next_due()]
        seconds = min(date for date in due if date is not None) - time.monotonic()
        for source in self._poll.wait(max(0.0, seconds)):
            if source is self._dealer:
                for data in self._dealer.receive():
                    try:
                        self._treat(frames.decode(data))
                    except BadFrame as error:
                        log.warning("bad frame from the server: %s", error)
            elif isinstance(source, BipbipProcess):
                self._read_answers(source)
            elif source is signals:
                signals.clear()
        try:
            self._store_reports()
            self._follow_doorbells()
            self._notices.settle()
            if self._has_messages:
                self._notices.send_waiting()
                self._has_messages = False
            if time.monotonic() >= self._next_look:
                self._follow_configuration()
                self._look()
                self._has_messages = True  # their announcement may be lost
                self._next_look = time.monotonic() + LOOK_SECONDS
        except DatabaseUnavailable as error:
            log.error("the database cannot be reached: %s", error)
            self._next_look = time.monotonic() + LOOK_SECONDS
        self._start_due_actions()
        self._report_load()

    def _treat(self, frame: Frame) -> None:
        match frame:
            case Ask(JobAction.SEND):
                self._has_messages = True
            case Ask():
                self._doorbells.append(frame)
            case EndReport():
                self._reports.append(frame)
            case Ping():
                self._tell(Pong())
            case StopChild():
                self._draining = time.monotonic() + DRAIN_SECONDS
            case _:
                log.warning("unexpected frame %s", frame)

    def _tell(self, frame: Frame) -> None:
        self._dealer.send(frames.encode(frame))

    def _deliver(self, effects: Sequence[Effect]) -> None:
        """Handle the effects for the Runner itself, and send the others to Almighty."""
        for message in announcements(effects):
            if isinstance(message, Ask):
                self._treat(message)
            else:
                self._tell(message)

    def _report_load(self) -> None:
        now = time.monotonic()
        if now >= self._next_load:
            self._next_load = now + LOAD_SECONDS
            running = len(self._dispatch.running)
            self._tell(Load(len(self._dispatch) - running, running))

    # -- actions -----------------------------------------------------------------------------------------------------

    def _follow_doorbells(self) -> None:
        """Add the actions that doorbells request by name, and the next action of each job that they name."""
        if not self._doorbells:
            return
        doorbells, self._doorbells = self._doorbells, []
        try:
            self._add_actions_for(doorbells)
        except DatabaseUnavailable:
            self._doorbells = doorbells + self._doorbells
            raise

    def _add_actions_for(self, doorbells: Collection[Ask]) -> None:
        ids = {ask.job_id for ask in doorbells if ask.job_id and not _is_known_end(ask)}
        jobs: dict[int, InHand] = {}
        owners: dict[int, str] = {}
        if ids:
            with self._database.begin() as tx:
                jobs = {job.job_id: job for job in tx.job_runs.in_hand(ids)}
                told_jobs = [ask.job_id for ask in doorbells if ask.action is JobAction.TELL]
                owners = tx.jobs.owners(told_jobs) if told_jobs else {}
        for ask in dict.fromkeys(doorbells):
            if _is_known_end(ask):
                self._add([Action(ActionKind.END, ask.job_id, ask.lines[0])])
            elif ask.action in HOST_ACTIONS:
                self._add(host_action(HOST_ACTIONS[ask.action], host) for host in ask.lines)
            elif ask.action is JobAction.ENERGY:
                self._add([Action(ActionKind.ENERGY)])
            elif ask.action is JobAction.HEAL:
                self._add([Action(ActionKind.HEAL, args=ask.lines)])
            elif ask.action is JobAction.TELL:
                self._add([Action(ActionKind.TELL, ask.job_id, args=ask.lines, user=owners.get(ask.job_id, ""))])
            elif ask.job_id in jobs:
                job = jobs[ask.job_id]
                kind = JOB_ACTIONS.get(ask.action)
                action = Action(kind, job.job_id, job.head_host) if kind else next_action(job, 0)
                self._add([action] if action else [])

    def _follow_configuration(self) -> None:
        """Reload oar.conf if it has changed; an invalid file is ignored. Bipbips reload it themselves."""
        config = self._runtime.changed_config()
        if config is None:
            return
        self._runtime.config = config
        self._notices.follow_configuration(config)
        logs.set_up(config, "Runner")
        log.info("the configuration was read again")

    def _look(self) -> None:
        """Add all actions that the database requires, with or without a doorbell."""
        config = self._runtime.config
        fault = self._launch_needs.find_fault(config, self._runtime.oardir)
        with self._database.begin() as tx:
            # Requests that were created while no server was running have waited long enough.
            stale = tx.now - STALE_KILL_SECONDS if self._started else tx.now + 1
            started_before = tx.now - START_NOTE_SECONDS if self._started else None
            self._started = self._started or tx.now
            period = config.job_probe_frequency
            probe_before = max(self._started, tx.now - period) if period else self._started
            jobs = tx.job_runs.in_hand(probe_before=probe_before)
            live = tx.job_runs.live()
            signals = tx.job_runs.signal_requests(tx.now - config.oar_ssh_connection_timeout)
            sweeps = tx.resources.to_sweep()
            launch_needs.follow(tx, fault)
            checks = tx.launch_holds.due_nodes(launch_holds.CHECKS)
            has_orders = not config.energy_saving_internal and bool(tx.events.open(ENERGY_ORDERS))
            if tx.job_requests.is_leon_late(stale):
                tx.outbox.append(Wake(Tag.QDEL))
        self._watch(self._watched_nodes.follow(config))
        self._dispatch.forget_jobs(live)
        self._add(action for job in jobs if (action := next_action(job, probe_before, started_before)))
        heads = {job.job_id: job.head_host for job in jobs}
        self._add(Action(ActionKind.SIGNAL, signal.job_id, heads.get(signal.job_id, "")) for signal in signals)
        self._add(host_action(ActionKind.SWEEP, host) for host in sweeps)
        self._add(host_action(ActionKind.CHECK, host) for host in checks)
        self._add([Action(ActionKind.ENERGY)] if has_orders else [])
        if time.monotonic() >= self._next_expiry:
            self._next_expiry = time.monotonic() + EXPIRY_SECONDS
            self._add([Action(ActionKind.EXPIRE)])

    def _watch(self, hosts: list[str]) -> None:
        """Tell each bipbip whose jobs' curves it records, if that has changed or the bipbip is new."""
        for number, bipbip in self._bipbips.items():
            known, former = self._watched.get(number, ([], ()))
            if known is hosts:
                continue
            mine = tuple(host for host in hosts if self._dispatch.worker_of_host(host) == number)
            if mine == former or bipbip.write(WatchNodes(mine)):
                self._watched[number] = hosts, mine

    def _add(self, actions: Iterable[Action]) -> None:
        for action in actions:
            self._dispatch.add(action)
            for worker, launch in self._dispatch.interrupted_by(action):
                self._bipbips[worker].write(InterruptLaunch(launch.job_id))

    # -- bipbips ---------------------------------------------------------------------------------------------------

    def _start(self, number: int) -> None:
        self._bipbips[number] = BipbipProcess(number)
        self._watched.pop(number, None)
        self._poll.add(self._bipbips[number])

    def _start_due_actions(self) -> None:
        """Send the due actions to their bipbips. Kill bipbips whose actions exceed their time limit."""
        if self._draining is not None:
            return
        now = time.monotonic()
        for number, action in self._dispatch.due(now):
            if not self._bipbips[number].write(RunAction(action)):
                self._bipbips[number].kill()  # its end is handled in the next turn
        for number, action in self._dispatch.older_than(self._runtime.config.bipbip_max_duration, now):
            logs.of_job(log, action.job_id).error("%s takes too long: its bipbip is killed", action.kind)
            self._bipbips[number].kill()

    def _read_answers(self, bipbip: BipbipProcess) -> None:
        answers, is_running = bipbip.read()
        for answer in answers:
            match answer:
                case ActionEnded(action, _, True):
                    self._note_failure(action)
                case ActionEnded(action, retry_after, _):
                    if action.message and retry_after is None:
                        self._notices.finish(action.message)
                    self._dispatch.finish(action, time.monotonic(), retry_after)
                case RunAction() | InterruptLaunch() | WatchNodes():
                    log.warning("unexpected answer %s", answer)
                case effect:
                    self._deliver([effect])
        if not is_running:
            self._replace(bipbip)

    def _replace(self, bipbip: BipbipProcess) -> None:
        """Replace a bipbip that has ended. Its actions are repeated; those that may have caused its end have failed."""
        self._poll.remove(bipbip)
        bipbip.close()
        if self._draining is None:
            log.error("bipbip %d is gone: it is replaced", bipbip.number)
            self._started = 0  # messages of its nodes were lost meanwhile: probe their jobs
            self._start(bipbip.number)
        limit, now = self._runtime.config.bipbip_max_duration, time.monotonic()
        suspects = self._dispatch.suspects(bipbip.number, limit, now)
        for action in self._dispatch.of_worker(bipbip.number):
            self._note_failure(action, counts=action in suspects)

    def _note_failure(self, action: Action, *, counts: bool = True) -> None:
        """Repeat an action that broke off. End its job if a launch or an end has failed too often.

        ``counts``: it may have caused this itself.
        """
        failures = self._dispatch.fail(action, time.monotonic(), counts=counts)
        if failures < MAX_FAILURES or action.kind not in (ActionKind.LAUNCH, ActionKind.END):
            return
        logs.of_job(log, action.job_id).error("%s broke off %d times: the job is given up", action.kind, failures)
        self._dispatch.give_up(action)
        try:
            with self._database.begin() as tx:
                _give_up(tx, action.job_id)
        except DatabaseUnavailable as error:  # the next periodic check finds the job again
            log.error("the database cannot be reached: %s", error)

    # -- reports of nodes ------------------------------------------------------------------------------------------

    def _store_reports(self) -> None:
        """Store the received end reports in one transaction, then answer them."""
        if not self._reports:
            return
        reports, self._reports = self._reports, []
        try:
            with self._database.begin() as tx:
                answers = self._end_reports.store(tx, reports)
        except DatabaseUnavailable:
            return  # without an answer, oarexec sends the report again
        for report, answer in zip(reports, answers, strict=True):
            if report.peer >= 0:
                self._tell(ReportReply(report.peer, answer))


def _is_known_end(ask: Ask) -> bool:
    """Return whether the end of the job has just been stored by this process, so that it need not be read again."""
    return ask.action is JobAction.END and bool(ask.lines)


def _give_up(tx: Transaction, job_id: int) -> None:
    """End a job whose actions fail repeatedly with an internal error."""
    text = f"[Runner] internal error: the actions on the job {job_id} broke off {MAX_FAILURES} times"
    tx.job_runs.report(job_id, ExecCode.DIED, None)
    note_finishing(tx, job_id, ExecCode.DIED, None)
    tx.events.add(EventType.EXIT_VALUE_OAREXEC, job_id, text, to_check=True)
    tx.outbox.append(Wake(Tag.CHSTATE))


def serve(opened: Runtime, endpoint: str) -> int:
    """Run the Runner. Return exit code 1 if the schema has another version."""
    with opened.database.snapshot() as tx:
        mismatch = explain_schema_mismatch(tx.system.schema_version())
    if mismatch:
        log.error("%s", mismatch)
        return ServerCode.CONFIGURATION
    with sockets.connected(endpoint) as dealer:
        if not _has_rules(opened):
            log.error("no admission rule is enabled: anybody could use the admin queue. Add the rules again, or set")
            log.error("ADMISSION_RULES_ACK_EMPTY=yes in oar.conf if this is intended")
            return ServerCode.CONFIGURATION
        with processes.signals() as signals:  # before this process announces itself
            parent = processes.watch_parent(os.environ)
            if parent is not None:
                parent.limit_life(LONGEST_ORPHAN)
            dealer.send(frames.encode(Hello("bipbip_commander", os.getpid())))
            runner = Runner(opened, dealer)
            try:
                restored_database.repair_if_restored(opened.database, opened.config.oar_run_dir)
            except (OSError, DatabaseWithoutRoom) as error:  # Chronicle repeats the check
                log.error("cannot check whether the database was restored: %s", error)
            ahead = retention.seconds_set_ahead(opened.database)
            with opened.database.begin() as tx:
                recovery.repair(tx)
                patience = opened.config.reservation_answer_timeout
                mended = reservation_repairs.repair(tx, patience=patience, ahead=ahead)
            for fault, number in mended.items():
                log.warning("[Recovery] %d rows of advance reservations are mended: %s", number, fault)
            return runner.run(signals, parent)


def _has_rules(opened: Runtime) -> bool:
    """Return whether an admission rule is enabled, or the administrator has acknowledged that none is needed."""
    config = opened.config
    if config.admission_rules_ack_empty or config.admission_rules_in_files:
        return True
    with opened.database.snapshot() as tx:
        return bool(tx.admission_rules.all(enabled=True))


def _tell_of_wait(endpoint: str, error: DatabaseUnavailable) -> None:
    """Notify the server, and log, that the database is not reachable."""
    log.warning("the database cannot be reached: %s", error)
    with sockets.connected(endpoint) as dealer:
        dealer.send(frames.encode(Away(str(error))))


def main() -> None:
    if sys.argv[1:2] != ["--worker"] or len(sys.argv) != 3:
        sys.stderr.write("oar-bipbip-commander is started by oar-almighty\n")
        sys.exit(2)
    opened = runtime.open_runtime("bipbip_commander", is_of_server=True)
    opened.database.pool.outage.follow(partial(_tell_of_wait, sys.argv[2]))
    opened.database.gather_topics()
    use_own_waits()
    with logs.logging_to(opened.config, "Runner"):
        try:
            code = serve(opened, sys.argv[2])
        except DatabaseRefused as error:
            log.error("the database does not let %s in (DB_* in oar.conf): %s", opened.database.settings.user, error)
            code = ServerCode.REFUSED
        except DatabaseUnavailable as error:
            log.error("the database cannot be reached: %s", error)
            code = ServerCode.DATABASE
    sys.exit(code)


if __name__ == "__main__":
    main()

"""LAUNCH: bring a job that has its resources to Running (server.md 6.1, 6.2).

The steps and the phase that is stored before or after each make a launch that can be broken off at any instruction:
a later attempt goes on after the stored phase.  From ``EXEC_SENT`` on only the node knows what happened; it is asked,
and an attempt that it never heard of is forbidden there before another is made, so that the user's command is started
once at most.
"""

import contextlib
import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from oar.lib import incidents, lifecycle
from oar.lib.causes import read_reason
from oar.lib.db.engine import Transaction
from oar.lib.errors import DatabaseUnavailable, NodeUnavailable
from oar.lib.logs import of_job
from oar.lib.messages import Ask, Due, Effect, JobAction, Tag, Wake
from oar.lib.model import Cause, JobRun, NodeReason
from oar.lib.remote.dialogue import Dialogue
from oar.lib.remote.requests import Ran, Request
from oar.lib.request import GROWING
from oar.lib.states import EndCode, EventType, ExecCode, JobState, Phase
from oar.modules.actions import job_data, nodes, probe
from oar.modules.actions.context import Context, Later, log
from oar.modules.actions.job_data import JobData
from oar.modules.actions.scripts import ScriptFailure, run_server_script

READY_LINE = "oarexec is initialized and ready to do the job"
STARTED_LINE = "STARTED"
END_LINE = "OAREXEC_SCRIPT_EXIT_VALUE"
#: Says the exit code of the job resource manager, when oarexec does its work first.
INIT_LINE = "INIT"
#: Says what the head found when something of the job failed there; before the line that tells the failure.
REASON_LINE = "REASON "
ATTEMPTS = 3
STARTED_SECONDS = 30
#: Time that oarexec is given besides its prologue and the way to the node.
EXEC_SECONDS = 30
LONGEST_LOOK = 30
ATTACHED_LOOK = 3600.0
#: Exit codes above it are of an oarexec that was killed: the node knows how far it had come.
BY_SIGNAL = 128
#: How long a launch waits for a line before it looks whether somebody wants the job killed.
PATIENCE = 1.0

#: States of a job whose launch goes on.
_LAUNCHED = (JobState.LAUNCHING, JobState.RUNNING)
#: Phases after which only the node knows what happened.
UNCERTAIN = (Phase.EXEC_SENT, Phase.GO)


class LaunchFailed(Exception):
    """The launch has to be given up."""

    def __init__(self, event: EventType, text: str, hosts: Collection[str] = (), line: str = "") -> None:
        super().__init__(text)
        self.event = event
        self.hosts = tuple(hosts)
        self.line = line  #: what a waiting oarsub is told


class Killed(Exception):
    """Somebody asked for the end of the job before its command was started."""


@dataclass(slots=True)
class _Launch:
    """A launch that is going on."""

    context: Context
    data: JobData
    run: JobRun
    good: set[str] = field(default_factory=set)  #: nodes that are prepared

    @property
    def id(self) -> int:
        return self.data.job.id

    @property
    def head(self) -> str:
        return self.data.exec_host(self.context.config)


def launch(context: Context, job_id: int) -> Later | None:
    """Bring a job to Running, from wherever a former attempt left it."""
    with context.database.begin() as tx:
        data = _claim(tx, context, job_id)
    if data is None or data.run is None:
        return None
    one = _Launch(context, data, data.run)
    try:
        if data.is_noop:
            _launch_noop(one)
            return None
        if data.run.phase in UNCERTAIN:
            return _resume(one)
        _prepare(one)
        return _execute(one)
    except LaunchFailed as failure:
        _give_up(one, failure)
    except Killed:
        _end(one, ExecCode.KILLED)
    return None


def _claim(tx: Transaction, context: Context, job_id: int) -> JobData | None:
    """Take the job, or go on with it; None if there is nothing to launch."""
    data = job_data.read(tx, job_id)
    if data is None:
        return None
    if data.job.state is JobState.TO_LAUNCH:
        return _take(tx, context, data)
    phase = data.run.phase if data.run else Phase.CLAIMED
    if data.job.state is JobState.LAUNCHING and phase is not Phase.FAILED:
        if data.run is None:
            tx.runs.claim(job_id, data.exec_host(context.config))
        return replace(data, run=tx.runs.find(job_id))
    return data if data.job.state is JobState.RUNNING and phase is Phase.GO else None


def _take(tx: Transaction, context: Context, data: JobData) -> JobData | None:
    job_id = data.job.id
    if not lifecycle.move(tx, job_id, JobState.LAUNCHING):
        return None
    if not data.resources:
        tx.jobs.update(job_id, message="No resource assigned")
        tx.events.add(EventType.BIPBIP_BAD_JOBID, job_id, f"[bipbip {job_id}] No resource assigned")
        lifecycle.move_all(tx, [job_id], JobState.ERROR, because={job_id: Cause(EndCode.NO_RESOURCES)})
        return None
    if data.is_interactive and not data.is_reservation:
        tx.outbox.append(Ask(JobAction.TELL, job_id, ("Starting...",)))
    tx.runs.claim(job_id, data.exec_host(context.config))
    return replace(data, run=tx.runs.find(job_id))


def _launch_noop(one: _Launch) -> None:
    _prologue(one)
    with one.context.database.begin() as tx:
        if tx.runs.kill_request(one.id):
            raise Killed
        lifecycle.move(tx, one.id, JobState.RUNNING)
        tx.runs.update(one.id, phase=Phase.STARTED)
        tx.outbox.extend(_begun(one.data))


def _begun(data: JobData) -> list[Effect]:
    """Return whom the beginning of a job concerns: Sarko has its end to watch, the scheduler may give it more time."""
    effects: list[Effect] = [Due(_deadline(data))]
    return [*effects, Wake(Tag.WALLTIME)] if GROWING in data.type_texts else effects


def _deadline(data: JobData) -> int:
    """Return when Sarko has to look at a job that starts: for its checkpoint, or when its walltime is over."""
    return data.job.start_time + data.walltime - (data.job.checkpoint or -1)


# -- steps 4 to 7: nodes and server prologue -----------------------------------------------------------------------


def _prepare(one: _Launch) -> None:
    """Prepare the nodes (the head may be left to the session of oarexec), then run the server prologue."""
    config = one.context.config
    hosts = set(one.data.processors(config))
    if not _must_wait_for_prologue(one):
        hosts.discard(one.head)
    _prepare_hosts(one, hosts)
    _check_nodes(one)
    _prologue(one)


def _prepare_hosts(one: _Launch, hosts: set[str]) -> None:
    """Let the job resource manager prepare nodes; again where a reservation goes on with fewer, so that they know."""
    one.good = set()
    while hosts:
        bad = {host: answer.reason for host, answer in _initialise(one, hosts).items() if not answer.good}
        one.good = hosts = hosts - set(bad)
        if not bad:
            return
        _go_on_without(one, EventType.CPUSET_ERROR, bad)


def _must_wait_for_prologue(one: _Launch) -> bool:
    """Whether the head must be prepared before the server prologue, or by a program of the site."""
    config = one.context.config
    return bool(config.server_prologue_exec_file) or nodes.site_manager(config) is not None


def _initialise(one: _Launch, hosts: Collection[str]) -> dict[str, nodes.Answer]:
    data = job_data.manager_data(one.data, one.context.config)
    try:
        return nodes.manage(one.context, "init", hosts, data, one.context.config.oar_ssh_connection_timeout)
    except nodes.ManagerMissing as error:
        raise LaunchFailed(EventType.CPUSET_MANAGER_FILE, f"[bipbip {one.id}] {error}", (), _SILENT) from None


def _check_nodes(one: _Launch) -> None:
    """Ping the job's hosts if the site has a checker; without one ``init`` or oarexec tell whether they live."""
    if nodes.has_checker(one.context.config):
        bad = nodes.unreachable(one.context, one.data.hosts)
        if bad:
            _go_on_without(one, EventType.PING_CHECKER_NODE_SUSPECTED, bad)
            _prepare_hosts(one, one.good - set(bad))


def _go_on_without(one: _Launch, event: EventType, bad: Mapping[str, str]) -> None:
    """Let a reservation go on with its other hosts; any other launch has failed."""
    text = "; ".join(f"{host}: {reason}" for host, reason in sorted(bad.items()))
    description = f"[bipbip {one.id}] {text}"
    rest = [host for host in one.data.hosts if host not in bad]
    if not (one.data.is_reservation and rest):
        empty = one.data.is_reservation and event is EventType.PING_CHECKER_NODE_SUSPECTED
        raise LaunchFailed(
            EventType.RESERVATION_NO_NODE if empty else event,
            description,
            bad,
            "ERROR: some resources did not respond",
        )
    with one.context.database.begin() as tx:
        tx.events.add(event, one.id, description, to_check=True, hosts=bad)
        tx.jobs.update(one.id, message=f"One or several nodes are not responding correctly({event})")
        tx.jobs.drop_resources(one.id, bad)
        data = job_data.read(tx, one.id)
        tx.outbox.append(Wake(Tag.CHSTATE))
    if data is not None:
        one.data = data


def _prologue(one: _Launch) -> None:
    """Run the server prologue, at least once: after a crash it may run again."""
    config = one.context.config
    if not config.server_prologue_exec_file or one.run.phase is Phase.PROLOGUE_OK:
        return
    try:
        run_server_script(config, config.server_prologue_exec_file, one.data, one.run.attempt)
    except ScriptFailure as failure:
        events = {
            "missing": (EventType.SERVER_PROLOGUE_ERROR, "ERROR: SERVER PROLOGUE returned a bad value"),
            "code": (EventType.SERVER_PROLOGUE_EXIT_CODE_ERROR, "ERROR: SERVER PROLOGUE returned a bad value"),
            "timeout": (EventType.SERVER_PROLOGUE_TIMEOUT, "ERROR: SERVER PROLOGUE timed out"),
        }
        event, line = events[failure.kind]
        raise LaunchFailed(event, f"[bipbip {one.id}] {failure}", (), line) from None
    with one.context.database.begin() as tx:
        tx.runs.update(one.id, phase=Phase.PROLOGUE_OK)


# -- steps 8 to 11: oarexec ----------------------------------------------------------------------------------------


def _execute(one: _Launch) -> Later | None:
    """Start oarexec, let it begin once the database says Running."""
    _note_sent(one)
    config = one.context.config
    seconds = config.prologue_epilogue_timeout + EXEC_SECONDS + config.oar_ssh_connection_timeout
    whole = seconds if config.detach_job_from_server else seconds + one.data.walltime + config.jobdel_walltime
    init = one.head in one.data.processors(config) and one.head not in one.good
    data = job_data.oarexec_data(one.data, config, one.run.attempt, init=init)
    try:
        dialogue = one.context.remote.dialogue(one.head, Request("oarexec", "run", data), whole)
    except NodeUnavailable as error:
        return _without_head(one, _unreached(one), str(error).removeprefix(f"{one.head}: "))
    try:
        return _talk(one, dialogue, time.monotonic() + seconds)
    except NodeUnavailable as error:
        of_job(log, one.id).info("%s", error)
        return _resume(one)
    except DatabaseUnavailable:
        dialogue.close()  # an oarexec that waits for GO learns at once that none will come from here
        raise


def _note_sent(one: _Launch) -> None:
    """Note that oarexec is about to be sent, before it is."""
    with one.context.database.begin() as tx:
        if tx.runs.kill_request(one.id):
            raise Killed
        tx.runs.update(one.id, phase=one.run.phase if one.run.phase is Phase.GO else Phase.EXEC_SENT)


def _talk(one: _Launch, dialogue: Dialogue, deadline: float) -> Later | None:
    """Follow the lines of oarexec until the command runs, or it is clear that it does not, or nothing is clear."""
    said_go = False
    while True:
        answer = dialogue.receive(STARTED_SECONDS if said_go else PATIENCE)
        match answer:
            case str() as line if line == READY_LINE:
                _let_go(one, dialogue)
                said_go = True
            case str() as line if line == STARTED_LINE:
                _started(one, dialogue)
                return None
            case str() as line if line.startswith(END_LINE):
                return _ended_at_once(one, dialogue, line)
            case str() as line if line.startswith(REASON_LINE):
                _note_reason(one, line)
            case str() as line if line.startswith(INIT_LINE) and line != f"{INIT_LINE} 0":
                return _without_head(one, EventType.CPUSET_ERROR, _last_words(dialogue))
            case str() as line if line.startswith(("ALREADY", "STALE")) or time.monotonic() > deadline:
                dialogue.close()  # the last: a node that talks and talks
                return _resume(one)
            case Ran(exit=code, stderr=text):
                return _exited(one, code, text, said_go=said_go)
            case None:
                _wait_on(one, dialogue, deadline, said_go=said_go)
                if said_go or time.monotonic() > deadline:
                    dialogue.close()
                    return _resume(one)


def _last_words(dialogue: Dialogue) -> str:
    """Return why the job resource manager failed."""
    answer = dialogue.receive(STARTED_SECONDS)
    return answer.stderr.strip() if isinstance(answer, Ran) else "the job resource manager failed"


def _wait_on(one: _Launch, dialogue: Dialogue, deadline: float, *, said_go: bool) -> None:
    """Break off the launch of a job that somebody wants killed, as long as its command cannot have been started."""
    if not said_go and one.context.interrupted(one.id) and _is_to_end(one):
        dialogue.send("ABORT")
        dialogue.close()
        raise Killed


def _is_to_end(one: _Launch) -> bool:
    """Whether the job is to end: who interrupts a launch may also have a signal for it, or be late."""
    with one.context.database.begin() as tx:
        job, run = tx.jobs.get(one.id), tx.runs.find(one.id)
        asked = tx.runs.kill_request(one.id) is not None
    return asked or job.state not in _LAUNCHED or bool(run and run.report_date)


def _has_other_head(one: _Launch) -> bool:
    """Whether another host may be the head in the place of this one."""
    return one.data.is_reservation and one.head in one.data.hosts and len(one.data.hosts) > 1


def _without_head(one: _Launch, event: EventType, reason: str) -> Later | None:
    """Let a reservation go on with another head: on this one nothing was started.  Raises LaunchFailed."""
    if not _has_other_head(one):
        raise LaunchFailed(event, f"[bipbip {one.id}] {one.head}: {reason}", [one.head], _SILENT)
    _go_on_without(one, event, {one.head: reason})
    _prepare_hosts(one, set(one.data.processors(one.context.config)))
    with one.context.database.begin() as tx:
        tx.runs.update(one.id, head_host=one.head)
    return _execute(one)


_SILENT = "ERROR: an error occured on the first job node"
#: What the oarsub of a job that will not start is told.
JOB_KILLED, BAD_JOB = "JOB KILLED", "BAD JOB"


def _unreached(one: _Launch) -> EventType:
    """Return the event of a head that cannot be reached."""
    if one.data.processors(one.context.config):
        return EventType.CPUSET_ERROR
    return EventType.PING_CHECKER_NODE_SUSPECTED


def _let_go(one: _Launch, dialogue: Dialogue) -> None:
    """Move the job to Running unless somebody wants it killed, then say GO."""
    with one.context.database.begin() as tx:
        job = tx.jobs.lock(one.id)
        running = job is not None and job.state is JobState.RUNNING
        allowed = tx.runs.kill_request(one.id) is None and (running or lifecycle.move(tx, one.id, JobState.RUNNING))
        if allowed:
            tx.runs.update(one.id, phase=Phase.GO)
            tx.outbox.extend(_begun(one.data))
    if not allowed:
        dialogue.send("ABORT")
        raise Killed
    dialogue.send(f"GO {one.run.attempt}")


def _started(one: _Launch, dialogue: Dialogue) -> None:
    """Note that the command runs; tell a waiting oarsub."""
    with one.context.database.begin() as tx:
        note_started(tx, one.data, dialogue.boot_id)
    if one.context.config.detach_job_from_server:
        dialogue.close()
    else:
        one.context.watch(f"job {one.id}", lambda: _follow(one, dialogue))


def note_started(tx: Transaction, data: JobData, boot_id: str) -> None:
    """Note that the command of a job runs.  Nothing is lost if this is: the node knows."""
    tx.need_not_last()
    tx.runs.note_started(data.job.id, boot_id)
    if data.is_interactive and not data.is_reservation:
        tx.outbox.append(Ask(JobAction.TELL, data.job.id, ("GOOD JOB",)))


def _follow(one: _Launch, dialogue: Dialogue) -> None:
    """Stay with an attached job until it ends.  If the session is lost the job is not: its end is reported by TCP."""
    status: int | None = None
    try:
        while True:
            match dialogue.receive(ATTACHED_LOOK):
                case str() as line if line.startswith(END_LINE):
                    status = _status_in(line)
                case Ran(exit=code, stderr=text):
                    return _end(one, code, status, text)
    except NodeUnavailable as error:
        of_job(log, one.id).info("%s", error)


def _ended_at_once(one: _Launch, dialogue: Dialogue, line: str) -> Later | None:
    """The command could not be started, or oarexec is attached and it has ended already."""
    answer = dialogue.receive(STARTED_SECONDS)
    if not isinstance(answer, Ran):
        dialogue.close()
        return _resume(one)
    _end(one, answer.exit, _status_in(line), answer.stderr)
    return None


def _note_reason(one: _Launch, line: str) -> None:
    try:
        reason = read_reason(json.loads(line[len(REASON_LINE) :]))
    except ValueError:
        reason = None
    if reason:
        with one.context.database.begin() as tx:
            tx.runs.note_reason(one.id, reason)


def _status_in(line: str) -> int | None:
    return probe.read_status(line.rpartition(" ")[2])


def _exited(one: _Launch, code: int, text: str, *, said_go: bool) -> Later | None:
    """Oarexec ended without a word about the command."""
    of_job(log, one.id).info("oarexec ended with %s: %s", code, text)
    if code in (ExecCode.OK, ExecCode.STALE) or code > BY_SIGNAL or said_go:
        return _resume(one)
    _end(one, code, None, text)
    return None


def _end(
    one: _Launch, code: int, status: int | None = None, text: str = "", *, reason: NodeReason | None = None
) -> None:
    """Note the end of the job, of whose start its oarsub has not heard; END does the rest."""
    with one.context.database.begin() as tx:
        if tx.runs.report(one.id, code, status) and text:
            tx.runs.update(one.id, detail=text)
        if reason:
            tx.runs.note_reason(one.id, reason)
        tx.outbox.append(Ask(JobAction.END, one.id))
        if one.data.is_interactive and not one.data.is_reservation:
            tx.outbox.append(Ask(JobAction.TELL, one.id, (JOB_KILLED if code == ExecCode.KILLED else BAD_JOB,)))


# -- 6.2: nothing is clear ------------------------------------------------------------------------------------------


def _resume(one: _Launch) -> Later | None:
    """Ask the head what has become of the launch, and go on accordingly."""
    with one.context.database.begin() as tx:
        run, now = tx.runs.find(one.id), tx.now
    if run is None:
        return None
    one.run = run
    answer = probe.ask_one(one.context, one.head, one.data, fence=run.attempt)
    match answer.word:
        case "never" | "aborted":
            return _try_again(one)
        case "started" | "running":
            with one.context.database.begin() as tx:
                probe.note_recovered(tx, one.data, answer.boot_id)
            return None
        case "ended" | "died":
            _end(one, answer.code, answer.status, reason=answer.reason)
            return None
        case _ if now - run.updated > one.context.config.launch_unknown_timeout:
            # Without GO, which is said after the phase of that name is stored, the command cannot have been started.
            if run.phase is not Phase.GO and _has_other_head(one):
                return _without_head(one, _unreached(one), f"did not answer ({answer.word})")
            known = "state unknown" if run.phase is Phase.GO else incidents.NOT_STARTED
            text = f"[bipbip {one.id}] {known}: {one.head} did not answer ({answer.word})"
            raise LaunchFailed(EventType.LAUNCHING_OAREXEC_TIMEOUT, text, [one.head], _SILENT)
        case _:
            return Later(min(max(1, now - run.updated), LONGEST_LOOK))


def _try_again(one: _Launch) -> Later | None:
    """Launch once more: the head has proved that it did not start the command, and never will by a former attempt."""
    if one.run.attempt >= ATTEMPTS:
        raise LaunchFailed(
            EventType.LAUNCHING_OAREXEC_TIMEOUT,
            f"[bipbip {one.id}] {incidents.NOT_STARTED} after {one.run.attempt} attempts on {one.head}",
            [one.head],
            _SILENT,
        )
    with one.context.database.begin() as tx:
        tx.runs.update(one.id, attempt=one.run.attempt + 1)
    one.run = one.run._replace(attempt=one.run.attempt + 1)
    return _execute(one)


def _give_up(one: _Launch, failure: LaunchFailed) -> None:
    """Clean what was prepared, then write the event; NodeChangeState does what follows from it."""
    of_job(log, one.id).warning("the launch is given up: %s", failure)
    config = one.context.config
    touched = (one.good | {one.head}) & set(one.data.processors(config)) - set(failure.hosts)
    if touched:
        data = job_data.manager_data(one.data, config)
        with contextlib.suppress(nodes.ManagerMissing):  # then it is why the launch has failed
            nodes.manage(one.context, "clean", touched, data, config.oar_ssh_connection_timeout)
    with one.context.database.begin() as tx:
        if one.data.is_interactive and failure.line:
            tx.outbox.append(Ask(JobAction.TELL, one.id, (failure.line,)))
        if tx.jobs.get(one.id).state is JobState.RUNNING:
            # The database says Running although the command was never started: it ends as a job that died.
            tx.runs.report(one.id, ExecCode.NOT_CONFIRMED, None)
            tx.outbox.append(Ask(JobAction.END, one.id))
            return
        tx.events.add(failure.event, one.id, str(failure), to_check=True, hosts=failure.hosts)
        if one.data.is_reservation and incidents.spares_reservations(failure.event):
            tx.events.add(EventType.RESERVATION_NO_NODE, one.id, str(failure), to_check=True)
        tx.runs.update(one.id, phase=Phase.FAILED)
        tx.outbox.append(Wake(Tag.CHSTATE))

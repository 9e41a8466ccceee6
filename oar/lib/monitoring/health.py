"""Health of the server, with the words and exit codes of monitoring systems. Pure functions.

CRITICAL: no job can be submitted, started or ended. WARNING: some jobs cannot, or there is another problem.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from oar.lib.base.times import format_date
from oar.lib.jobs.states import ServerRole
from oar.lib.monitoring.records import ADMIN_QUEUE, HealthFacts, QueueStatus, ServerTask, UserHold


class ServerHealth(IntEnum):
    """Health of the server; the value is the exit code for monitoring systems."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


#: A scheduling pass has to begin each minute; so many seconds without one are worth a look, or bad.
LATE_ROUND, LOST_ROUND = 300.0, 900.0
#: A module that runs periodically is late, or lost, after so many of its periods without success, and at least the
#: seconds above.
LATE_PERIODS, LOST_PERIODS = 3, 10
#: So many actions on jobs that wait for their turn are worth a look.
MANY_ACTIONS = 1000
#: Number of refused submissions, or of failed launches, that is reported if none succeeded in between; they are counted
#: over this period, in seconds.
MANY_FAILURES, FAILURES_PERIOD = 3, 3600
#: Part of the resources that may be Suspected.
MOST_SUSPECTED = 0.5
#: Seconds for which an ended job may wait for oaraccounting, which runs each hour.
LATE_ACCOUNTING = 3 * 3600
#: What an administrator does about refused submissions.
_SEE_RULES = "See LOG_FILE, or run the rules as a user: oaradmissionrules --test --as LOGIN -- -l nodes=1 date"
#: Queues that a finding about stopped queues names; the others are counted.
MOST_QUEUES = 5
#: Users that a finding names; the others are counted.
MOST_NAMES = 2
#: Characters of a text from the database that are reported.
LONGEST_TEXT = 200


class HealthFinding(NamedTuple):
    """A problem of the server, and its severity."""

    health: ServerHealth
    text: str


class HealthReport(NamedTuple):
    findings: tuple[HealthFinding, ...]

    def joined(self, other: "HealthReport") -> "HealthReport":
        """Return both reports as one; findings of the other report come first, because they may be the cause."""
        return HealthReport((*other.findings, *self.findings))

    @property
    def health(self) -> ServerHealth:
        """The severity of the worst finding."""
        return max((finding.health for finding in self.findings), default=ServerHealth.OK)

    @property
    def line(self) -> str:
        """One line with the health and all findings, worst first."""
        worst = sorted(self.findings, key=lambda finding: -finding.health)
        return f"OAR {self.health.name}: " + ("; ".join(finding.text for finding in worst) or "no problems found")


#: The files of which a key of oar.conf gives the path.
_WRITTEN = {
    "LOG_FILE": "the log",
    "COMPLETION_LOG": "the log of ended jobs",
    "METRICS_FILE": "the metrics for Prometheus",
    "OAR_RUN_DIR": "the state files of the server",
}


class Surroundings(NamedTuple):
    """Problems of the server's environment; an empty value means no problem."""

    database: str = ""  #: why the database cannot be used
    key: str = ""  #: why the server's SSH key cannot be used
    places: Mapping[str, str] = {}  #: why places cannot be written, by the keys of oar.conf
    configuration: Sequence[str] = ()  #: errors in oar.conf
    timers: Sequence[str] = ()  #: timers and their services that do not work, with the way out


def judge_surroundings(surroundings: Surroundings) -> HealthReport:
    """Return the findings about the server's environment."""
    critical, warning = ServerHealth.CRITICAL, ServerHealth.WARNING
    findings = []
    if surroundings.database:
        findings.append(HealthFinding(critical, f"the database cannot be used: {surroundings.database}"))
    if surroundings.key:
        findings.append(HealthFinding(critical, f"no node can be reached: {surroundings.key}"))
    if surroundings.configuration:
        errors = "; ".join(surroundings.configuration)
        text = (
            f"oar.conf has errors: {errors}: the server uses the former values and would not start again."
            " Correct oar.conf before you restart it: oar-conf --check"
        )
        findings.append(HealthFinding(warning, text))
    for key, problem in surroundings.places.items():
        findings.append(HealthFinding(warning, f"cannot write {_WRITTEN[key]}: {key}: {problem}"))
    findings += [HealthFinding(warning, problem) for problem in surroundings.timers]
    return HealthReport(tuple(findings))


# -- the server -------------------------------------------------------------------------------------------------------


def judge_status(status: Mapping[str, Any] | None, now: float, waited: float = 0) -> HealthReport:
    """Return the findings about the status record of a running server; None: no response within ``waited`` seconds."""
    if status is None:
        text = f"the server runs and did not answer within {waited:g} s. See LOG_FILE; if this lasts, restart it"
        return HealthReport((HealthFinding(ServerHealth.CRITICAL, text),))
    if status.get("role") == ServerRole.STANDBY and not status.get("waits_for"):
        return HealthReport(())
    if not status.get("ready"):
        reason = status.get("waits_for") or "its Runner is not ready"
        state = "cannot work" if (status.get("runner") or {}).get("ready") else "is starting"
        return HealthReport((HealthFinding(ServerHealth.WARNING, f"the server {state}: {reason}"),))
    findings = (
        *_judge_runner(status.get("runner") or {}),
        *_judge_modules(status, now),
        *_judge_rounds(status, now),
        *_judge_files(status.get("last_round") or {}),
    )
    return HealthReport(findings)


def _judge_runner(runner: Mapping[str, Any]) -> Iterator[HealthFinding]:
    if not runner.get("ready", True):
        text = "no job can start or end: the Runner does not work. See LOG_FILE"
        yield HealthFinding(ServerHealth.CRITICAL, text)
    waiting = runner.get("waiting") or 0
    if waiting > MANY_ACTIONS:
        yield HealthFinding(ServerHealth.WARNING, f"{waiting} actions on jobs wait for their turn")


def _judge_modules(status: Mapping[str, Any], now: float) -> Iterator[HealthFinding]:
    for name, module in (status.get("modules") or {}).items():
        if module.get("last_result") == "failed":
            begun = f", begun at {format_date(int(module['last_start']))}," if module.get("last_start") else ""
            yield HealthFinding(ServerHealth.CRITICAL, f"the last pass of {name}{begun} failed. See LOG_FILE")
        elif name != "meta_sched" and module.get("period"):  # _judge_rounds checks meta_sched
            seconds = now - max(module.get("last_success") or 0, status.get("start") or 0)
            text = f"no pass of {name} has succeeded for {seconds:.0f} s"
            if seconds > max(LOST_ROUND, LOST_PERIODS * module["period"]):
                yield HealthFinding(ServerHealth.CRITICAL, text)
            elif seconds > max(LATE_ROUND, LATE_PERIODS * module["period"]):
                yield HealthFinding(ServerHealth.WARNING, text)


def _judge_rounds(status: Mapping[str, Any], now: float) -> Iterator[HealthFinding]:
    scheduler = (status.get("modules") or {}).get("meta_sched") or {}
    begun = max(scheduler.get("last_start") or 0, status.get("start") or 0)
    seconds = now - begun
    if seconds > LATE_ROUND:
        text = f"no scheduling pass has begun for {seconds:.0f} s"
        yield HealthFinding(ServerHealth.CRITICAL if seconds > LOST_ROUND else ServerHealth.WARNING, text)


def _judge_files(last_round: Mapping[str, Any]) -> Iterator[HealthFinding]:
    """Report the policy files (quotas, priorities) that the scheduler could not read."""
    for problem in last_round.get("file_errors") or ():
        yield HealthFinding(ServerHealth.WARNING, problem)


# -- the cluster ------------------------------------------------------------------------------------------------------


def judge_cluster(facts: HealthFacts | str, now: float) -> HealthReport:
    """Return the findings about whether jobs can be submitted, started and accounted.

    ``facts``: the facts, or an error message if they cannot be read.
    """
    if isinstance(facts, str):
        text = f"cannot check the jobs: {facts}. Run: oar-database --check"
        return HealthReport((HealthFinding(ServerHealth.WARNING, text),))
    return HealthReport(
        (
            *_judge_submissions(facts),
            *_judge_queues(facts.queues),
            *_judge_resources(facts),
            *_judge_launches(facts),
            *_judge_accounting(facts, now),
        )
    )


def _judge_submissions(facts: HealthFacts) -> Iterator[HealthFinding]:
    for error in facts.rule_errors:
        yield HealthFinding(ServerHealth.CRITICAL, f"no job can be submitted: {_sentence(error)} {_SEE_RULES}")
    refusals = facts.refusals
    if refusals.number >= MANY_FAILURES:
        text = f"the last {refusals.number} submissions were refused, the last one: {_sentence(refusals.last)}"
        yield HealthFinding(ServerHealth.WARNING, f"{text} {_SEE_RULES}")


def _judge_queues(queues: Sequence[QueueStatus]) -> Iterator[HealthFinding]:
    """Report stopped queues, whoever stopped them; ordinary users cannot submit to the queue of administrators."""
    if not queues:
        text = "no job can start: there is no queue. Add one: oarqueue --add NAME,PRIORITY,POLICY"
        yield HealthFinding(ServerHealth.CRITICAL, text)
        return
    stopped = [queue for queue in queues if not queue.is_active]
    if not stopped:
        return
    text = _describe_stops(stopped, is_all=len(stopped) == len(queues))
    if len(stopped) == len(queues):
        yield HealthFinding(ServerHealth.CRITICAL, f"no job can start: all queues are stopped: {text}")
    elif all(queue.name == ADMIN_QUEUE for queue in queues if queue.is_active):
        text = f"no job of a user can start: only the queue {ADMIN_QUEUE} is active, the others are stopped: {text}"
        yield HealthFinding(ServerHealth.CRITICAL, text)
    else:
        yield HealthFinding(ServerHealth.WARNING, f"jobs of stopped queues cannot start: {text}")


def _describe_stops(stopped: Sequence[QueueStatus], *, is_all: bool) -> str:
    """Return who stopped each queue since when, and how to enable them; at most ``MOST_QUEUES`` queues are named."""
    named = stopped[:MOST_QUEUES]
    groups: dict[str, list[str]] = {}
    for queue in named:
        author = queue.author or "OAR after failures"
        since = f" since {format_date(queue.since)}" if queue.since else ""
        groups.setdefault(f"by {author}{since}", []).append(queue.name)
    texts = [f"{', '.join(names)} ({stop})" for stop, names in groups.items()]
    if len(stopped) > len(named):
        texts.append(f"{len(stopped) - len(named)} more (oarqueue)")
    is_wanted = all(queue.author for queue in stopped)
    advice = "If the reason is gone, run" if is_wanted else "Correct the error in LOG_FILE, then run"
    enabled = "--enable-all" if is_all else " ".join(f"--enable {queue.name}" for queue in named)
    return f"{' and '.join(texts)}. {advice}: oarqueue {enabled}"


def _judge_resources(facts: HealthFacts) -> Iterator[HealthFinding]:
    if facts.lost_nodes:
        text = f"no node is Alive, {facts.lost_nodes} are Suspected or Absent (oarnodes --reasons)"
        yield HealthFinding(ServerHealth.CRITICAL, f"no job can start: {text}")
    elif facts.suspected > MOST_SUSPECTED * facts.resources:
        text = f"{facts.suspected} of {facts.resources} resources are Suspected (oarnodes --reasons)"
        yield HealthFinding(ServerHealth.WARNING, text)


def _judge_launches(facts: HealthFacts) -> Iterator[HealthFinding]:
    for hold in facts.launch_holds:
        yield HealthFinding(ServerHealth.CRITICAL, f"no job is started: {_shorten(hold)}")
    if facts.user_holds:
        text = _describe_user_holds(facts.user_holds)
        yield HealthFinding(ServerHealth.WARNING, text)
    failed = facts.failed_launches
    if failed and failed.number >= MANY_FAILURES:
        text = f"the last {failed.number} launches failed: {failed.code}. See the log of the server (LOG_FILE)"
        yield HealthFinding(ServerHealth.WARNING, text)


def _describe_user_holds(holds: Sequence[UserHold]) -> str:
    """Return the users whose launches are held, the reason for the first one, and the repair."""
    users = list(dict.fromkeys(hold.user for hold in holds))
    names = " and ".join(users)
    if len(users) > MOST_NAMES:
        more = len(users) - MOST_NAMES
        names = f"{', '.join(users[:MOST_NAMES])} and {more} more {'user' if more == 1 else 'users'}"
    return f"launches of {names} are held: {_sentence(holds[0].reason)} {holds[0].repair}"


def _judge_accounting(facts: HealthFacts, now: float) -> Iterator[HealthFinding]:
    """Check the accounting if oaraccounting has run at least once."""
    last = dict(facts.successes).get(ServerTask.ACCOUNTING)
    oldest = facts.oldest_not_accounted
    if last is not None and oldest and now - max(last, oldest) > LATE_ACCOUNTING:
        text = f"ended jobs are not accounted: oaraccounting succeeded last at {format_date(last)}"
        yield HealthFinding(ServerHealth.WARNING, f"{text}. See: systemctl status oar-accounting.timer")


def _sentence(text: str) -> str:
    """Return a text, shortened, with one full stop at its end."""
    line = _shorten(text)
    return line if line.endswith((".", "!", "?")) else f"{line}."


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_TEXT else f"{line[:LONGEST_TEXT]}..."

"""Health of the server, in the words and exit codes of monitoring systems: pure.

CRITICAL: no job can be submitted, started or ended.  WARNING: some jobs cannot, or something else is wrong.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from oar.lib.facts.health import HealthFacts, QueueStatus, ServerTask
from oar.lib.facts.times import format_date


class ServerHealth(IntEnum):
    """How it is; the value is the exit code that monitoring systems know."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


#: A round has to begin each minute; so many seconds without one are worth a look, or bad.
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
#: Characters of a text from the database that are reported.
LONGEST_TEXT = 200


class HealthFinding(NamedTuple):
    """Something about the server, and how bad it is."""

    health: ServerHealth
    text: str


class HealthReport(NamedTuple):
    """All that was found."""

    findings: tuple[HealthFinding, ...]

    def joined(self, other: "HealthReport") -> "HealthReport":
        """Both reports in one; of what is equally bad, the other one comes first, which may be the cause."""
        return HealthReport((*other.findings, *self.findings))

    @property
    def health(self) -> ServerHealth:
        """The worst of it."""
        return max((finding.health for finding in self.findings), default=ServerHealth.OK)

    @property
    def line(self) -> str:
        """One line: how it is, and why, the worst first."""
        worst = sorted(self.findings, key=lambda finding: -finding.health)
        return f"OAR {self.health.name}: " + ("; ".join(finding.text for finding in worst) or "the server is well")


#: The files of which a key of oar.conf gives the path.
_WRITTEN = {
    "LOG_FILE": "the log",
    "COMPLETION_LOG": "the log of ended jobs",
    "METRICS_FILE": "the metrics for Prometheus",
    "OAR_RUN_DIR": "the state files of the server",
}


class Surroundings(NamedTuple):
    """Problems of what the server needs; an empty value means that there is none."""

    database: str = ""  #: why the database cannot be used
    key: str = ""  #: why the server's SSH key cannot be used
    places: Mapping[str, str] = {}  #: why places cannot be written, by the keys of oar.conf
    configuration: Sequence[str] = ()  #: errors in oar.conf
    timers: Sequence[str] = ()  #: timers and their services that do not work, with the way out


def judge_surroundings(surroundings: Surroundings) -> HealthReport:
    """Return the findings about what the server needs."""
    critical, warning = ServerHealth.CRITICAL, ServerHealth.WARNING
    findings = []
    if surroundings.database:
        findings.append(HealthFinding(critical, f"the database cannot be used: {surroundings.database}"))
    if surroundings.key:
        findings.append(HealthFinding(critical, f"no node can be reached: {surroundings.key}"))
    if surroundings.configuration:
        errors = "; ".join(surroundings.configuration)
        text = f"the old configuration stays, and no start would succeed: {errors}"
        findings.append(HealthFinding(warning, text))
    for key, problem in surroundings.places.items():
        findings.append(HealthFinding(warning, f"cannot write {_WRITTEN[key]}: {key}: {problem}"))
    findings += [HealthFinding(warning, problem) for problem in surroundings.timers]
    return HealthReport(tuple(findings))


# -- the server -------------------------------------------------------------------------------------------------------


def judge_status(status: Mapping[str, Any] | None, now: float) -> HealthReport:
    """Return the findings about the status record of a server that runs; None: it did not answer."""
    if status is None:
        return HealthReport((HealthFinding(ServerHealth.CRITICAL, "the server runs and does not answer"),))
    if not status.get("ready"):
        reason = status.get("waits_for") or "its Runner is not ready"
        return HealthReport((HealthFinding(ServerHealth.WARNING, f"the server is starting: {reason}"),))
    findings = (
        *_judge_runner(status.get("runner") or {}),
        *_judge_modules(status, now),
        *_judge_rounds(status, now),
        *_judge_files(status.get("last_round") or {}),
    )
    return HealthReport(findings)


def _judge_runner(runner: Mapping[str, Any]) -> Iterator[HealthFinding]:
    if not runner.get("ready", True):
        text = "no job can start or end: the Runner does not work; the log says why"
        yield HealthFinding(ServerHealth.CRITICAL, text)
    waiting = runner.get("waiting") or 0
    if waiting > MANY_ACTIONS:
        yield HealthFinding(ServerHealth.WARNING, f"{waiting} actions on jobs wait for their turn")


def _judge_modules(status: Mapping[str, Any], now: float) -> Iterator[HealthFinding]:
    for name, module in (status.get("modules") or {}).items():
        if module.get("last_result") == "failed":
            yield HealthFinding(ServerHealth.CRITICAL, f"the last pass of {name} failed")
        elif name != "meta_sched" and module.get("period"):  # the beginnings of its rounds are judged
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
    """Judge the files of policies (quotas, priorities) that the scheduler could not read."""
    for problem in last_round.get("file_errors") or ():
        yield HealthFinding(ServerHealth.WARNING, f"the scheduler {problem}")


# -- the cluster ------------------------------------------------------------------------------------------------------


def judge_cluster(facts: HealthFacts | None, now: float) -> HealthReport:
    """Return the findings about jobs: can they be submitted, started and accounted?  None: nobody knows."""
    if facts is None:
        text = "the database did not answer in time: jobs were not checked"
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
        yield HealthFinding(ServerHealth.CRITICAL, f"no job can be submitted: {_shorten(error)}")
    refusals = facts.refusals
    if refusals.number >= MANY_FAILURES:
        text = f"the last {refusals.number} submissions were refused, the last one: {_shorten(refusals.last)}"
        yield HealthFinding(ServerHealth.WARNING, text)


def _judge_queues(queues: Sequence[QueueStatus]) -> Iterator[HealthFinding]:
    stopped = [queue for queue in queues if not queue.is_active]
    if len(stopped) == len(queues):
        text = f"no job can start: no queue is active{_describe_stop(stopped)}. Run: oarqueue --enable-all"
        yield HealthFinding(ServerHealth.CRITICAL, text)
        return
    for queue in stopped:
        if not queue.author:
            text = f"the queue {queue.name} is not active{_describe_stop([queue])}. Run: oarqueue --enable {queue.name}"
            yield HealthFinding(ServerHealth.WARNING, text)


def _describe_stop(queues: Sequence[QueueStatus]) -> str:
    """Return who stopped queues last, and when."""
    last = max(queues, key=lambda queue: queue.since, default=None)
    if last is None:
        return ""
    since = f" since {format_date(last.since)}" if last.since else ""
    return f"{since} (stopped by {last.author or 'OAR, the log says why'})"


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


def _describe_user_holds(holds: Sequence[str]) -> str:
    """Return whose launches are held, and why: a reason names its user."""
    if len(holds) == 1:
        return f"launches of 1 user are held: {_shorten(holds[0])}"
    return f"launches of {len(holds)} users are held, the first: {_shorten(holds[0])}"


def _judge_accounting(facts: HealthFacts, now: float) -> Iterator[HealthFinding]:
    """Judge the accounting where oaraccounting was run once."""
    last = dict(facts.successes).get(ServerTask.ACCOUNTING)
    oldest = facts.oldest_not_accounted
    if last is not None and oldest and now - max(last, oldest) > LATE_ACCOUNTING:
        text = f"ended jobs are not accounted: oaraccounting succeeded last at {format_date(last)}"
        yield HealthFinding(ServerHealth.WARNING, f"{text}. See: systemctl status oar-accounting.timer")


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_TEXT else f"{line[:LONGEST_TEXT]}..."

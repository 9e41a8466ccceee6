"""Whether the server is well, in the words and exit codes of monitoring systems: pure."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple


class ServerHealth(IntEnum):
    """How it is; the value is the exit code that monitoring systems know."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


#: A round has to begin each minute; so many seconds without one are worth a look, or bad.
LATE_ROUND, LOST_ROUND = 300.0, 900.0
#: So many actions on jobs that wait for their turn are worth a look.
MANY_ACTIONS = 1000


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


#: What is written where a key of oar.conf says.
_WRITTEN = {
    "LOG_FILE": "the log",
    "COMPLETION_LOG": "what happens to jobs",
    "METRICS_FILE": "the figures for Prometheus",
    "OAR_RUN_DIR": "what the server keeps beside the database",
}


def surroundings(
    database: str, written: Mapping[str, str], conf_errors: Sequence[str] = (), nodes_away: int = 0
) -> HealthReport:
    """Judge what the server needs: why its database cannot be used (nothing: it can), why places cannot be written.

    ``written``: the reasons by the keys of oar.conf, only of places with which something is wrong.
    ``conf_errors``: what is wrong in oar.conf itself.  ``nodes_away``: of how many nodes none is Alive; 0: one is.
    """
    findings = []
    if nodes_away:
        text = f"no node is Alive, {nodes_away} are Suspected or Absent (oarnodes -e last)"
        findings.append(HealthFinding(ServerHealth.WARNING, text))
    if database:
        findings.append(HealthFinding(ServerHealth.CRITICAL, f"the database cannot be used: {database}"))
    if conf_errors:
        text = f"the old configuration stays, and no start would succeed: {'; '.join(conf_errors)}"
        findings.append(HealthFinding(ServerHealth.WARNING, text))
    for key, trouble in written.items():
        findings.append(HealthFinding(ServerHealth.WARNING, f"{_WRITTEN[key]} cannot be written ({key}): {trouble}"))
    return HealthReport(tuple(findings))


def judged(status: Mapping[str, Any] | None, now: float) -> HealthReport:
    """Judge the status record of a server that runs; None: it did not answer."""
    if status is None:
        return HealthReport((HealthFinding(ServerHealth.CRITICAL, "the server runs and does not answer"),))
    if not status.get("ready"):
        return HealthReport((HealthFinding(ServerHealth.WARNING, "the server is starting: its Runner is not ready"),))
    findings = [*_modules(status.get("modules") or {}), *_rounds(status, now), *_actions(status.get("runner") or {})]
    return HealthReport(tuple(findings))


def _modules(modules: Mapping[str, Mapping[str, Any]]) -> list[HealthFinding]:
    return [
        HealthFinding(ServerHealth.CRITICAL, f"the last pass of {name} failed")
        for name, module in modules.items()
        if module.get("last_result") == "failed"
    ]


def _rounds(status: Mapping[str, Any], now: float) -> list[HealthFinding]:
    scheduler = (status.get("modules") or {}).get("meta_sched") or {}
    begun = max(scheduler.get("last_start") or 0, status.get("start") or 0)
    seconds = now - begun
    if seconds <= LATE_ROUND:
        return []
    text = f"no round of the scheduler has begun for {seconds:.0f} s"
    return [HealthFinding(ServerHealth.CRITICAL if seconds > LOST_ROUND else ServerHealth.WARNING, text)]


def _actions(runner: Mapping[str, Any]) -> list[HealthFinding]:
    waiting = runner.get("waiting") or 0
    if waiting <= MANY_ACTIONS:
        return []
    return [HealthFinding(ServerHealth.WARNING, f"{waiting} actions on jobs wait for their turn")]

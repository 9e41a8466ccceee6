"""Metrics of jobs, resources and the scheduler for monitoring systems."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.monitoring.prometheus_text import Histogram, HistogramFamily, MetricFamily, counter

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.history.sql_usage import OwnedJobs


#: For whom the users or projects are counted that are not named.
OTHER = "other"
#: Names of the numbers that tell of them.
_SHARES = {
    "user": ("oar_user_jobs", "oar_user_resources"),
    "project": ("oar_project_jobs", "oar_project_resources"),
}


class Labels(NamedTuple):
    """The metric labels whose values users choose, and the maximum number of values of each."""

    names: Sequence[str] = ()  #: ``user``, ``project``
    most: int = 0

    @classmethod
    def of(cls, config: "Config") -> "Labels":
        return cls(config.api_metrics_labels, config.api_metrics_values)


NO_LABELS = Labels()


def families(tx: "Transaction", labels: Labels = NO_LABELS) -> Iterator[MetricFamily]:
    """Yield the gauges of the current state."""
    for name in labels.names:
        yield from share_families(name, tx.usage.shares(name), labels.most)
    by_state = tx.listings.live_by_queue()
    rows = [((str(state), queue), float(number)) for (queue, state), number in by_state.items()]
    yield MetricFamily("oar_jobs", "Live jobs.", ("state", "queue"), rows)
    waiting = [((queue, str(code)), float(number)) for (queue, code), number in tx.usage.reasons().items()]
    yield MetricFamily("oar_jobs_waiting", "Waiting jobs by the code of their reason.", ("queue", "reason"), waiting)
    oldest = [((wait.queue,), float(tx.now - wait.oldest)) for wait in tx.usage.waits()]
    yield MetricFamily("oar_oldest_wait_seconds", "How long the oldest waiting job has waited.", ("queue",), oldest)
    numbers: dict[tuple[str, ...], float] = {}
    for kind, state, is_used, drains, sleeps, number, _ in tx.usage.conditions():
        if state == "Alive":
            condition = "busy" if is_used else "drain" if drains else "free"
        else:
            condition = "standby" if state == "Absent" and sleeps else state.lower()
        numbers[kind, condition] = numbers.get((kind, condition), 0.0) + number
    yield MetricFamily("oar_resources", "Resources by type and condition.", ("type", "state"), list(numbers.items()))
    yield from health_families(tx)
    nodes = [((state,), float(number)) for state, number in tx.usage.nodes()]
    yield MetricFamily("oar_nodes", "Nodes that have a resource in a state.", ("state",), nodes)
    actions = [((phase,), float(number)) for phase, number in tx.usage.actions()]
    yield MetricFamily("oar_actions_pending", "Jobs on their way to nodes or from them, by phase.", ("phase",), actions)
    unseen = [((), float(tx.usage.events_to_check()))]
    yield MetricFamily("oar_events_to_check", "Events that the server has not dealt with yet.", (), unseen)
    reservations = tx.reservations.counts()
    by_letter = [((state,), float(number)) for state, number, _ in reservations]
    yield MetricFamily("oar_reservations", "Live advance reservations.", ("state",), by_letter)
    missing = float(sum(missing for _, _, missing in reservations))
    what = "Resources that live advance reservations miss."
    yield MetricFamily("oar_reservation_missing_slots", what, (), [((), missing)])
    sessions = [((state,), float(number)) for state, number in tx.usage.sessions().items()]
    yield MetricFamily("oar_database_sessions", "Sessions of OAR; some wait for a lock.", ("state",), sessions)
    date = tx.usage.last_round()
    age = float(tx.now - date) if date else float("inf")
    yield MetricFamily("oar_round_age_seconds", "Seconds since the last round of the scheduler.", (), [((), age)])


def health_families(tx: "Transaction") -> Iterator[MetricFamily]:
    """Yield the metrics that ``oar-server status --check`` also checks."""
    queues = tx.figures.queues()
    active = [((queue.name,), float(queue.is_active)) for queue in queues]
    yield MetricFamily("oar_queue_active", "Whether jobs of a queue may start.", ("queue",), active)
    stopped = sum(not (queue.is_active or queue.author) for queue in queues)
    yield MetricFamily("oar_queues_stopped_by_oar", "Queues that OAR itself stopped.", (), [((), float(stopped))])
    confirmed = [hold for hold in tx.launch_holds.all() if hold.is_confirmed]
    of_all = sum(not hold.user for hold in confirmed)
    of_users = len({hold.user for hold in confirmed if hold.user})
    holds = [(("all",), float(of_all)), (("user",), float(of_users))]
    what = "Faults because of which all launches are held, and users whose launches are held."
    yield MetricFamily("oar_launch_holds", what, ("scope",), holds)
    suspected = [((kind,), float(number)) for kind, (_, number) in tx.figures.suspected().items()]
    yield MetricFamily("oar_resources_suspected", "Suspected resources by type.", ("type",), suspected)
    ages = [((task,), float(tx.now - date)) for task, date in tx.figures.successes()]
    what = "Seconds since the last success of a task that a timer runs."
    yield MetricFamily("oar_task_success_age_seconds", what, ("task",), ages)


def share_families(name: str, shares: "Sequence[OwnedJobs]", most: int) -> Iterator[MetricFamily]:
    """Yield the jobs and resources of the users or projects with the most resources (then jobs); sum up the others.

    The number of lines is therefore limited, whatever names users choose.
    """
    sizes: dict[str, tuple[int, int]] = {}
    for share in shares:
        resources, jobs = sizes.get(share.owner, (0, 0))
        sizes[share.owner] = resources + share.resources, jobs + share.jobs
    named = set(sorted(sizes, key=lambda owner: (*(-number for number in sizes[owner]), owner))[:most])
    by_state: Counter[tuple[str, ...]] = Counter()
    held: Counter[tuple[str, ...]] = Counter()
    for share in shares:
        owner = share.owner if share.owner in named else OTHER
        by_state[owner, share.state] += share.jobs
        held[(owner,)] += share.resources
    jobs_name, resources_name = _SHARES[name]
    yield MetricFamily(jobs_name, f"Live jobs by {name}.", (name, "state"), _numbers(by_state))
    yield MetricFamily(resources_name, f"Resources that live jobs have, by {name}.", (name,), _numbers(held))


def _numbers(counts: Mapping[tuple[str, ...], int]) -> list[tuple[tuple[str, ...], float]]:
    return [(values, float(number)) for values, number in sorted(counts.items())]


def rounds_of(status: Mapping[str, Any]) -> list[HistogramFamily]:
    """Return the histogram of scheduling pass durations in a status record of the server, [] if it has none."""
    if "rounds" not in status:
        return []
    rounds = Histogram.of(status["rounds"])
    return [HistogramFamily.of("oar_round_seconds", "How long rounds of the scheduler took.", rounds)]


def server_families(status: Mapping[str, Any], now: float) -> Iterator[MetricFamily]:
    """Yield the metrics of a status record of the server; yield nothing if it is empty."""
    modules: Mapping[str, Mapping[str, Any]] = status.get("modules") or {}
    if not modules:
        return
    yield counter(
        "oar_module_passes_total",
        "Passes of the modules.",
        "module",
        {name: each["passes"] for name, each in modules.items()},
    )
    yield counter(
        "oar_module_failures_total",
        "Passes that failed.",
        "module",
        {name: each["failures"] for name, each in modules.items()},
    )
    are_up = [((name,), float(each.get("pid") is not None)) for name, each in modules.items()]
    yield MetricFamily("oar_modules_up", "Whether the process of a module lives.", ("module",), are_up)
    durations = [((name,), float(each["last_duration"])) for name, each in modules.items()]
    yield MetricFamily(
        "oar_module_last_duration_seconds", "How long the last pass of a module took.", ("module",), durations
    )
    yield from _module_ages(modules, status.get("start") or 0, now)
    yield from _last_round(status.get("last_round") or {})
    runner = status.get("runner") or {}
    actions = [((name,), float(runner[name])) for name in ("waiting", "running") if name in runner]
    yield MetricFamily("oar_runner_actions", "Actions on jobs in the Runner's hands.", ("state",), actions)
    is_ready = [((), float(runner["ready"]))] if "ready" in runner else []
    yield MetricFamily("oar_runner_ready", "Whether the Runner starts and ends jobs.", (), is_ready)
    start = float(status.get("start") or 0)
    yield MetricFamily("oar_server_start_seconds", "When the server was started, epoch seconds.", (), [((), start)])
    yield MetricFamily("oar_server_role", "What this server is.", ("role",), [(("active",), 1.0)])


def _module_ages(modules: Mapping[str, Mapping[str, Any]], start: float, now: float) -> Iterator[MetricFamily]:
    """Yield the time since the last success of each module (or the server start), and its longest period."""
    ages = [
        ((module.get("lane", ""), name), now - max(module.get("last_success") or 0, start))
        for name, module in modules.items()
    ]
    what = "Seconds since the last pass of a module that succeeded."
    yield MetricFamily("oar_module_success_age_seconds", what, ("lane", "module"), ages)
    periods = [
        ((module.get("lane", ""), name), float(module["period"]))
        for name, module in modules.items()
        if module.get("period")
    ]
    what = "Longest time between the starts of two passes of a module."
    yield MetricFamily("oar_module_period_seconds", what, ("lane", "module"), periods)


def _last_round(record: Mapping[str, Any]) -> Iterator[MetricFamily]:
    if not record:
        return
    phases = [((name,), float(seconds)) for name, seconds in record["phases"].items()]
    what = "How long the parts of the last round of the scheduler took."
    yield MetricFamily("oar_round_phase_seconds", what, ("phase",), phases)
    yield MetricFamily("oar_round_jobs", "Jobs that waited for the last round.", (), [((), float(record["jobs"]))])
    unread = [((), float(len(record.get("file_errors") or ())))]
    yield MetricFamily("oar_policy_file_errors", "Files of policies that the scheduler could not read.", (), unread)

"""For monitoring: health checks, and metrics for Prometheus.  See docs/api.rst, "Metrics"."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from starlette.requests import Request
from typing_extensions import TypedDict

from oar.api.clients import client_of
from oar.api.responses import Answer, answer
from oar.api.routing import Router
from oar.api.service import Service, service_of
from oar.lib.base.allowed_networks import Networks
from oar.lib.base.errors import DatabaseUnavailable, NotAllowed
from oar.lib.base.version import explain_schema_mismatch
from oar.lib.bus.control_client import ask
from oar.lib.bus.frames import Status, StatusQuestion
from oar.lib.db.lock_keys import SERVER_LOCK
from oar.lib.monitoring.metrics import Labels, families, rounds_of, server_families
from oar.lib.monitoring.prometheus_text import HistogramFamily, MetricFamily
from oar.lib.monitoring.replication import LatestReplication

router = Router("health")


Liveness = TypedDict("Liveness", {"status": str})
FeedState = TypedDict("FeedState", {"mode": str, "lag": float, "is_well": bool})
Workers = TypedDict("Workers", {"idle": int, "all": int})
Threads = TypedDict("Threads", {"busy": int, "all": int})
ServerHealth = TypedDict("ServerHealth", {"running": bool | None, "round_age": int | None})


class Readiness(TypedDict):
    database: str
    schema: str
    feed: FeedState
    workers: Workers
    threads: Threads
    server: ServerHealth


#: Seconds without a look at the database after which the feed counts as stuck.
MAX_FEED_AGE = 30.0


@router.get("/health/live", "health_live", "Liveness check", record=Liveness, has_tag=False)
async def live() -> Answer:
    """Return 200 while the process runs; no other component is checked."""
    return answer({"status": "ok"})


@router.get("/health/ready", "health_ready", "Readiness check", record=Readiness, has_tag=False)
def ready(request: Request) -> Answer:
    """Return the state of the database, the event feed, the workers and the threads; 503 if not ready.

    `server` is the state of the OAR server. Jobs can be submitted while it is down.
    """
    service = service_of(request)
    hub = service.hub
    try:
        with service.runtime.database.snapshot() as tx:
            mismatch, last_round = explain_schema_mismatch(tx.system.schema_version()), tx.usage.last_round()
            server: dict[str, bool | int | None] = {
                "running": bool(tx.system.lock_holder(SERVER_LOCK)),
                "round_age": tx.now - last_round if last_round else None,
            }
        database = "ok"
    except DatabaseUnavailable:
        mismatch, database, server = "unknown", "unreachable", {"running": None, "round_age": None}
    age = time.monotonic() - hub.checked_at
    feed = {"mode": "notify" if hub.reports_changes else "poll", "lag": round(age, 1), "is_well": age < MAX_FEED_AGE}
    is_ready = database == "ok" and not mismatch
    config = service.runtime.config
    record = {
        "database": database,
        "schema": "another version" if mismatch else "ok",
        "feed": feed,
        "workers": {"idle": service.workers.idle, "all": config.api_submission_workers},
        "threads": {"busy": service.requests.threads_busy, "all": config.api_threads},
        "server": server,
    }
    return answer(record, status=200 if is_ready else 503)


#: Seconds for which a response is returned again.
KEPT_SECONDS = 10.0
#: Seconds given to the OAR server to report its status.
PATIENCE = 0.5


class TextForm(NamedTuple):
    """A text format of metrics."""

    type: str
    write: Callable[[CollectorRegistry], bytes]


PLAIN = TextForm("text/plain; version=0.0.4; charset=utf-8", generate_latest)
OPEN = TextForm("application/openmetrics-text; version=1.0.0; charset=utf-8", openmetrics.generate_latest)


class Measured(Collector):
    """Reads the numbers from one snapshot of the database."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._replication = LatestReplication()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        with self._service.runtime.database.snapshot() as tx:
            present = list(families(tx, Labels.of(self._service.runtime.config)))
        present += self._replication.families(self._service.runtime.database.settings)
        hub, happenings = self._service.hub, self._service.happenings
        present += [
            *happenings.families(),
            *self._service.requests.families(),
            MetricFamily(
                "oar_api_worker_restarts_total",
                "Worker processes that were replaced.",
                (),
                [((), float(self._service.workers.restarts))],
                "counter",
            ),
            MetricFamily("oar_api_streams", "Clients that follow what happens.", (), [((), float(hub.listeners))]),
            MetricFamily(
                "oar_api_feed_lag_seconds",
                "Seconds since the database was looked at.",
                (),
                [((), time.monotonic() - hub.checked_at)],
            ),
        ]
        response = ask(self._service.runtime.config, StatusQuestion(), Status, PATIENCE)
        status = response.state if isinstance(response, Status) else {}  # a server that does not answer at once
        yield from map(_metric, [*present, *server_families(status, time.time())])
        yield from map(_histogram, [*happenings.histograms(), *self._service.requests.histograms(), *rounds_of(status)])


def metrics_registry(service: Service) -> CollectorRegistry:
    """Return the registry of the metrics of a service."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Measured(service))
    return registry


@router.get(
    "/metrics",
    "metrics",
    "Prometheus metrics",
    has_tag=False,
    media_types=("text/plain", "application/openmetrics-text"),
)
def metrics(request: Request) -> Answer:
    """Return metrics of jobs, resources and the scheduler. Allowed for the networks of API_METRICS_NETWORKS.

    The `Accept` header `application/openmetrics-text` selects the OpenMetrics format.
    """
    service, client = service_of(request), client_of(request)
    if not client.is_in(Networks(service.runtime.config.api_metrics_networks)):
        way_out = "it is in no network of API_METRICS_NETWORKS. An administrator adds it in oar.conf."
        raise NotAllowed(f"cannot read the metrics: {client}{f': {way_out}' if client.address else ''}")
    form = OPEN if OPEN.type.partition(";")[0] in request.headers.get("accept", "") else PLAIN
    registry: CollectorRegistry = request.app.state.metrics
    text = service.cache.recent(("metrics", form.type), lambda: form.write(registry), KEPT_SECONDS)
    return Answer(text, 200, {"Cache-Control": "no-store"}, form.type)


def _metric(family: MetricFamily) -> Metric:
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    made = kind(family.name, family.help, labels=family.labels)
    for values, number in family.rows:
        made.add_metric(values, number)
    return made


def _histogram(family: HistogramFamily) -> Metric:
    made = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    for values, histogram in family.rows:
        made.add_metric(values, buckets=histogram.classes, sum_value=histogram.sum)
    return made

"""What Prometheus reads: jobs, resources, the scheduler, the service itself.  See docs/api.rst, "Metrics"."""

import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from oar.api.answers import Answer
from oar.api.callers import peer_of_request
from oar.api.service import Service, service_of
from oar.lib.facts.errors import NotAllowed
from oar.lib.io.allowed_networks import Networks

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

router = APIRouter(tags=["health"])

#: Seconds for which an answer is given again.
KEPT_SECONDS = 10.0
TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Measured(Collector):
    """Reads the numbers from one snapshot of the database."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Give the metrics."""
        with self._service.runtime.database.snapshot() as tx:
            yield from _of_jobs(tx)
            yield from _of_resources(tx)
            date = tx.usage.last_round()
            yield _gauge(
                "oar_round_age_seconds",
                "Seconds since the last round of the scheduler.",
                [],
                [((), tx.now - date if date else float("inf"))],
            )
        hub = self._service.hub
        yield _gauge("oar_api_streams", "Clients that follow what happens.", [], [((), hub.listeners)])
        lag = time.monotonic() - hub.told_at
        yield _gauge("oar_api_feed_lag_seconds", "Seconds since the database was looked at.", [], [((), lag)])


class Metrics:
    """The last answer, and how it is made."""

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(Measured(service))
        self._lock = threading.Lock()
        self._made = 0.0
        self._text = b""

    def text(self) -> bytes:
        """Return the metrics as Prometheus reads them, at most some seconds old."""
        with self._lock:
            if not self._text or time.monotonic() - self._made > KEPT_SECONDS:
                self._text = generate_latest(self._registry)
                self._made = time.monotonic()
            return self._text


@router.get("/metrics", operation_id="metrics", summary="Numbers for Prometheus")
def metrics(request: Request) -> Answer:
    """Return jobs, resources and the state of the scheduler, for the networks of API_METRICS_NETWORKS."""
    service, peer = service_of(request), peer_of_request(request)
    if peer.address and not Networks(service.runtime.config.api_metrics_networks).has(peer.address):
        raise NotAllowed("the metrics are for other networks (API_METRICS_NETWORKS)")
    found: Metrics = request.app.state.metrics
    return Answer(found.text(), 200, {"Cache-Control": "no-store"}, TYPE)


def _of_jobs(tx: "Transaction") -> Iterator[Metric]:
    by_state = tx.job_pages.live_by_queue()
    rows = [((state, queue), float(number)) for (queue, state), number in by_state.items()]
    yield _gauge("oar_jobs", "Live jobs.", ["state", "queue"], rows)
    waiting = [((queue, code), float(number)) for (queue, code), number in tx.usage.reasons().items()]
    yield _gauge("oar_jobs_waiting", "Waiting jobs by the code of their reason.", ["queue", "reason"], waiting)
    oldest = [((wait.queue,), float(tx.now - wait.oldest)) for wait in tx.usage.waits()]
    yield _gauge("oar_oldest_wait_seconds", "How long the oldest waiting job has waited.", ["queue"], oldest)


def _of_resources(tx: "Transaction") -> Iterator[Metric]:
    numbers: dict[tuple[str, ...], float] = {}
    for kind, state, is_used, drains, sleeps, number, _ in tx.usage.conditions():
        if state == "Alive":
            condition = "busy" if is_used else "drain" if drains else "free"
        else:
            condition = "standby" if state == "Absent" and sleeps else state.lower()
        numbers[kind, condition] = numbers.get((kind, condition), 0.0) + number
    yield _gauge("oar_resources", "Resources by type and condition.", ["type", "state"], list(numbers.items()))


def _gauge(name: str, text: str, labels: list[str], rows: Sequence[tuple[tuple[str, ...], float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, number in rows:
        family.add_metric(list(values), number)
    return family

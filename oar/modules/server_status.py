"""The status of the server, as ``oarnotify --status`` displays it."""

import os
import time
from collections.abc import Mapping
from typing import Any

from oar.lib.base.version import VERSION
from oar.lib.bus.frames import Load
from oar.modules.automaton import LANES, Automaton, Lane, result_of
from oar.modules.children import RUNNER, RunnerRestarts
from oar.modules.supervisor import SupervisedChild, Supervisor


def server_status(
    automaton: Automaton,
    children: Supervisor,
    load: Load,
    last_round: Mapping[str, Any],
    *,
    restarts: RunnerRestarts,
    silence: str = "",
    start: int,
    now: float,
) -> dict[str, Any]:
    """Return the status record. Its dates are Unix times, its durations seconds.

    ``start``: start time of the server. ``now``: time of the automaton's clock. ``load``: load of the Runner.
    ``last_round``: record of the last scheduling pass, empty before the first one.
    ``silence``: why the database does not answer an active server, '' if it does.
    """
    epoch = time.time() - now
    return {
        "version": VERSION,
        "pid": os.getpid(),
        "start": start,
        "ready": restarts.is_ready and not silence,
        "waits_for": _waits_for(restarts, silence),
        "lanes": {
            lane.value: {"running": automaton.running[lane], "waiting": list(automaton.queues[lane])} for lane in Lane
        },
        "modules": {
            module.value: {
                **_process(children.workers[module]),
                "lane": LANES[module].value,
                "passes": record.passes,
                "failures": record.failures,
                "period": automaton.period(module),
                "last_start": None if record.started is None else round(epoch + record.started, 3),
                "last_success": None if record.succeeded is None else round(epoch + record.succeeded, 3),
                "last_duration": round(record.duration, 3),
                "last_code": record.code,
                "last_result": None if record.ended is None else result_of(module, record.code),
            }
            for module, record in automaton.records.items()
        },
        "rounds": automaton.rounds.record,
        "last_round": dict(last_round),
        "runner": {
            **_process(children.workers[RUNNER]),
            "ready": restarts.is_working and children.workers[RUNNER].child is not None,
            "waiting": load.waiting,
            "running": load.running,
        },
    }


def _process(worker: SupervisedChild) -> dict[str, Any]:
    return {
        "pid": worker.child.pid if worker.child else None,
        "state": worker.state.value,
        "restarts": max(0, worker.starts - 1),
    }


def _waits_for(restarts: RunnerRestarts, silence: str) -> str:
    """Return what the server waits for, '' if nothing."""
    if restarts.is_standby:
        return ""
    if restarts.is_ready:
        return f"waiting for the database at {restarts.database} ({silence})" if silence else ""
    return restarts.wait

"""The meta-scheduler as a module of the server. The scheduling passes are implemented in ``oar.kao``."""

import sys

from oar.kao.rounds.garbage_collection import defer_full_collections
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.base.clock_watch import ClockWatch
from oar.lib.db.system import ServerState
from oar.lib.runtime import Runtime
from oar.modules import worker


class _Scheduler:
    """Keep one meta-scheduler, with its caches, until the configuration changes."""

    def __init__(self) -> None:
        self._runtime: Runtime | None = None
        self._warm: MetaScheduler | None = None

    def run(self, runtime: Runtime, order: worker.PassOrder) -> worker.RoundResult:
        """Run a scheduling pass."""
        if self._warm is None or self._runtime is not runtime:
            if self._warm:
                self._warm.close()
            with runtime.database.snapshot() as tx:
                watch = ClockWatch(tx.system.read_state(ServerState.CLOCK))
            self._runtime, self._warm = runtime, MetaScheduler(runtime, goes_on=order.goes_on, watch=watch)
        code = self._warm.round(disable=order.disable, announce=order.announce)
        return worker.RoundResult(code, self._warm.next_start, self._warm.starts, self._warm.phases.record)

    def due(self) -> float | None:
        """Return the time in seconds until there is work between the passes, None if there is none."""
        return self._warm.due() if self._warm else None

    def go_on(self) -> None:
        """Do a slice of the work between the passes."""
        if self._warm:
            self._warm.go_on()


def main() -> int:
    """Run as a worker, or as a command of ``kao`` (``oar.modules.kao_commands``)."""
    if sys.argv[1:2] == ["--worker"]:
        scheduler = _Scheduler()
        defer_full_collections()
        return worker.main_of_scheduler("meta_sched", scheduler.run, scheduler)
    from oar.modules import kao_commands

    return kao_commands.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())

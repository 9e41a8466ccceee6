"""Greta: halt and wake nodes with the commands of the site, and keep some nodes awake (ENERGY_SAVING_INTERNAL).

The pending work is in the database: orders are the open events HALT_NODE and WAKEUP_NODE, and a node boots from its
last order until it is Alive. Only the list of running and ended commands is in memory. If Greta was killed, it runs
these commands again, which does no harm.

See docs/design/nodes.rst, "Greta".
"""

import logging
import queue
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.base import processes
from oar.lib.base.programs import split_command
from oar.lib.bus.exit_codes import GretaCode
from oar.lib.bus.messages import Energy, EnergyCommand
from oar.lib.history.event_types import EventType
from oar.lib.logs import of_nodes
from oar.lib.nodes import energy, state_changes
from oar.lib.nodes.energy import ENERGY_ORDERS, OrderStep, next_steps
from oar.lib.nodes.energy_records import KeptNodes, NodePower, may_sleep, nodes_missing, overdue_boots
from oar.lib.nodes.states import ALWAYS_AVAILABLE, NEVER_HALTED_NOR_WOKEN
from oar.modules import worker

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.history.records import Event
    from oar.lib.runtime import Deliver, Runtime

log = logging.getLogger("greta")

BY = "Greta"
#: Pause before nodes that are leaving are looked at again.
AGAIN_SECONDS = 2
#: Time between passes while commands run: such a pass restarts a Greta that has died.
WATCH_SECONDS = 10
#: Number of nodes of a refused order that are logged.
MOST_LOGGED = 20
#: Pause between two looks whether a command has ended.
POLL_SECONDS = 0.2


class GretaPass(NamedTuple):
    """The result of a pass."""

    code: int
    next: int | None  #: when the next window opens, or a woken node should be there


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """The end of a command of the site; ``error`` is '' if it succeeded."""

    order: "Event"
    hosts: tuple[str, ...]
    error: str


@dataclass(frozen=True, slots=True)
class EnergySituation:
    """The input of the decisions of a pass."""

    now: int
    orders: "Sequence[Event]"
    nodes: Mapping[str, NodePower]
    booting: Mapping[str, int]  #: since when
    kept: Sequence[KeptNodes]

    def ordered(self, type_: EventType) -> set[str]:
        """Return the nodes of the open orders of a type."""
        return {host for order in self.orders if order.type == type_ for host in order.hosts}

    def wakeable(self) -> list[str]:
        """Return the nodes that sleep, may be woken, and have no open order."""
        taken = self.booting.keys() | self.ordered(EventType.HALT_NODE) | self.ordered(EventType.WAKEUP_NODE)
        sleeping = (node for node in self.nodes.values() if node.is_asleep and node.earliest_upto > self.now)
        return [node.name for node in sleeping if node.name not in taken]

    def haltable(self) -> set[str]:
        """Return the idle nodes that the site permits to halt."""
        lowest, highest = NEVER_HALTED_NOR_WOKEN, ALWAYS_AVAILABLE
        return {
            node.name
            for node in self.nodes.values()
            if node.is_idle and lowest < node.earliest_upto and node.latest_upto < highest
        }


class Windows:
    """The number of commands that may start, limited in each window of time."""

    def __init__(self) -> None:
        self._end = float("-inf")
        self._room = 0

    def open(self, config: "Config", now: float) -> None:
        """Begin a window if the last one has ended."""
        if now >= self._end:
            self._end = now + config.energy_saving_window_time
            self._room = config.energy_saving_window_size

    def take(self, wanted: int) -> int:
        """Return how many of ``wanted`` commands may start now, and count these as started."""
        taken = min(wanted, self._room)
        self._room -= taken
        return taken

    def seconds_to_next(self, now: float) -> float:
        """Return the time in seconds until the next window begins."""
        return max(0.0, self._end - now)


class Greta:
    """The state of Greta that is not in the database, mainly the running commands."""

    def __init__(self) -> None:
        self._requests: list[Energy] = []
        self._ends: queue.SimpleQueue[CommandEnd] = queue.SimpleQueue()
        self._ended: set[tuple[int, str]] = set()  #: orders and nodes whose command has ended
        self._running: set[str] = set()  #: nodes for which a command runs
        self._woken: dict[str, int] = {}  #: when the command for a node that boots ended
        self._windows = Windows()
        self._has_rung = False
        self._deliver: Deliver | None = None  #: to the server

    # -- passes --

    def run(self, runtime: "Runtime", order: worker.PassOrder) -> GretaPass:
        """Carry out the due orders. If started from the command line, also wait for the commands of a window."""
        self._has_rung = False
        self._deliver = runtime.database.deliver
        result = self._look(runtime)
        while not order.goes_on and self._running:
            self._note(runtime, self._ends.get())
            result = self._look(runtime)
        return result

    def _look(self, runtime: "Runtime") -> GretaPass:
        while not self._ends.empty():
            self._note(runtime, self._ends.get())
        config = runtime.config
        if not config.energy_saving_internal:
            return GretaPass(GretaCode.DONE, None)
        kept = energy.kept_nodes(runtime.database, config.energy_saving_nodes_keepalive)
        with runtime.database.snapshot() as tx:
            power = tx.nodes.energy_nodes()
            asleep = [node.name for node in power.values() if node.is_asleep]
            booting = tx.nodes.booting_nodes(asleep) if asleep else {}
            situation = EnergySituation(tx.now, tx.events.open(ENERGY_ORDERS), power, booting, kept)
        next_boot = self._ask(runtime, situation)
        with runtime.database.snapshot() as tx:
            orders, power, now = tx.events.open(ENERGY_ORDERS), tx.nodes.energy_nodes(), tx.now
        steps = next_steps(orders, power, ended=self._ended, running=self._running)
        if complete := [step.order.id for step in steps if step.is_over]:
            with runtime.database.begin() as tx:
                tx.events.done(complete)
            self._ended = {(order, host) for order, host in self._ended if order not in complete}
        is_left = self._start(config, steps)
        dates = [next_boot] if next_boot is not None else []
        if is_left:
            dates.append(now + 1 + int(self._windows.seconds_to_next(time.monotonic())))
        if self._running:
            dates.append(now + WATCH_SECONDS)
        if any(power[host].is_leaving for step in steps for host in step.waiting):
            dates.append(now + AGAIN_SECONDS)
        return GretaPass(GretaCode.DONE, min(dates, default=None))

    # -- orders --

    def _ask(self, runtime: "Runtime", situation: EnergySituation) -> int | None:
        """Store new orders: those from programs of the site, those that keep nodes awake, and repeated wake orders.

        Return when the next booting node should be Alive.
        """
        config = runtime.config
        pending = situation.ordered(EventType.WAKEUP_NODE)
        self._woken = {name: date for name, date in self._woken.items() if name in situation.booting}
        woken = {
            name: max(date, self._woken.get(name, 0)) for name, date in situation.booting.items() if name not in pending
        }
        late, next_boot = overdue_boots(woken, config.energy_saving_node_manager_wakeup_timeout, situation.now)
        requests = tuple(self._requests)
        idle = [node.name for node in situation.nodes.values() if node.is_idle]
        wanted = nodes_missing([*idle, *situation.booting, *pending], situation.wakeable(), situation.kept)
        if not config.wake_command:
            wanted = []
        if requests or late or wanted:
            with runtime.database.begin() as tx:
                state_changes.order_wake(tx, late, BY, "these nodes are not there in time")
                state_changes.order_wake(tx, wanted, BY, "idle nodes are kept awake (ENERGY_SAVING_NODES_KEEPALIVE)")
                for request in requests:
                    _order(tx, request, situation, wanted)
            del self._requests[: len(requests)]
        return next_boot

    # -- commands --

    def _start(self, config: "Config", steps: Sequence[OrderStep]) -> bool:
        """Start commands as far as the window permits. Return whether some are left."""
        self._windows.open(config, time.monotonic())
        is_left = False
        for step in steps:
            if not step.ready:
                continue
            command = config.sleep_command if step.is_halt else config.wake_command
            if not command:
                log.warning("%s: no command is configured", step.order.description)
                self._ended.update((step.order.id, host) for host in step.ready)
                continue
            groups = [step.ready] if config.energy_saving_window_forker_bypass else [(host,) for host in step.ready]
            taken = groups[: self._windows.take(len(groups))]
            is_left |= len(taken) < len(groups)
            for hosts in taken:
                self._run(step.order, hosts, command, config.energy_saving_window_timeout)
        return is_left

    def _run(self, order: "Event", hosts: tuple[str, ...], command: str, timeout: float) -> None:
        of_nodes(log, *hosts).info(
            "%s %s", "halting" if order.type == EventType.HALT_NODE else "waking", ", ".join(hosts)
        )
        self._running.update(hosts)

        def run() -> None:
            error = "it broke off"
            try:
                error = run_command(command, hosts, timeout)
            finally:
                self._ends.put(CommandEnd(order, hosts, error))

        threading.Thread(target=run, name=f"energy {hosts[0]}", daemon=True).start()

    def _note(self, runtime: "Runtime", end: CommandEnd) -> None:
        """Store the result of a command. The command counts as running until the commit."""
        is_halt = end.order.type == EventType.HALT_NODE
        try:
            with runtime.database.begin() as tx:
                if end.error:
                    of_nodes(log, *end.hosts).error("%s", end.error)
                    state_changes.give_up_sleeping(tx, end.hosts, f"[{BY}] {end.error}")
                elif is_halt:
                    state_changes.bring_back(tx, end.hosts, BY, may_wake=bool(runtime.config.wake_command))
                else:
                    self._woken.update(dict.fromkeys(end.hosts, tx.now))
        except BaseException:
            self._ends.put(end)
            raise
        self._running.difference_update(end.hosts)
        self._ended.update((end.order.id, host) for host in end.hosts)

    # -- between the passes --

    def told(self, frame: Energy) -> None:
        """Add an order of a program of the site. The next pass, which starts at once, stores it."""
        self._requests.append(frame)
        self._has_rung = False

    def due(self) -> float | None:
        """Return the time in seconds until Greta requests a pass, None if no pass is expected."""
        if self._has_rung or self._deliver is None:
            return None
        if self._requests or not self._ends.empty():
            return 0.0
        return POLL_SECONDS if self._running else None

    def go_on(self) -> None:
        """Request a pass from the server."""
        self._has_rung = True
        if self._deliver:
            self._deliver([Energy(EnergyCommand.CHECK)])


def run_command(command: str, hosts: Collection[str], timeout: float) -> str:
    """Run a command of the site with one node per line on its standard input. Return its error, '' if it succeeded."""
    stdin = "".join(f"{host}\n" for host in hosts).encode()
    outcome = processes.run(split_command(command), timeout=timeout, stdin=stdin)
    if outcome.succeeded:
        return ""
    error = f"no end within {timeout:g} s" if outcome.timed_out else " ".join(outcome.output.split())
    return f"{command}: {error or processes.describe_exit(outcome.code or 0)}"


def _order(tx: "Transaction", request: Energy, situation: EnergySituation, woken: Collection[str]) -> None:
    """Store an order from a program of the site. Nodes for which it is not possible are skipped and logged."""
    names = dict.fromkeys(request.nodes)
    if request.command is EnergyCommand.HALT:
        haltable = situation.haltable()
        able = [name for name in names if name in haltable]
        idle = {node.name for node in situation.nodes.values() if node.is_idle}
        able = may_sleep(able, idle, situation.kept)
        state_changes.order_halt(tx, able, BY, "a program of the site halts these nodes")
    elif request.command is EnergyCommand.WAKEUP:
        wakeable = set(situation.wakeable()).difference(woken)
        able = [name for name in names if name in wakeable]
        state_changes.order_wake(tx, able, BY, "a program of the site wakes these nodes")
    else:
        return
    if refused := sorted(set(names).difference(able)):
        log.info("%s is refused for %s", request.command, ", ".join(refused[:MOST_LOGGED]))


def main() -> int:
    greta = Greta()
    return worker.main_of_scheduler("greta", greta.run, greta, greta.told)


if __name__ == "__main__":
    sys.exit(main())

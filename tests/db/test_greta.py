"""Greta halts and wakes nodes, keeps some awake, and is killed at each step: real commands, a real database."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.bus.messages import Ask, Effect, Energy, EnergyCommand, JobAction, Mail
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs.states import JobState
from oar.lib.nodes import state_changes
from oar.lib.nodes.states import ResourceState
from oar.lib.runtime import Runtime
from oar.modules import worker
from oar.modules.greta import Greta, GretaPass
from tests.builders import add_resources, execute_sql
from tests.db.test_energy import FOR_EVER, Plant
from tests.db.test_meta_sched import NOW, ask, at, submit
from tests.process.this_machine import wait_until

ONE_PASS = worker.PassOrder()
OF_A_WORKER = worker.PassOrder(goes_on=True)


class GretasPlant(Plant):
    """A cluster whose nodes Greta halts and wakes."""

    def __init__(self, database: Database, runtime: Runtime, directory: Path) -> None:
        super().__init__(database, runtime, directory)
        database.deliver = database.deliver or (lambda effects: None)
        self.configure(
            energy_saving_internal=True,
            energy_saving_node_manager_sleep_cmd=self.config.scheduler_node_manager_sleep_cmd,
            energy_saving_node_manager_wake_up_cmd=self.config.scheduler_node_manager_wake_up_cmd,
            energy_saving_window_timeout=60,
            energy_saving_window_time=50,
        )
        self.greta = Greta()

    def configure(self, **changed: object) -> None:
        self.config = self.config.replace(**changed)
        self.runtime = Runtime(self.config, self.database)
        self.scheduler = MetaScheduler(self.runtime)

    def greta_looks(self, order: worker.PassOrder = ONE_PASS) -> GretaPass:
        return self.greta.run(self.runtime, order)

    def tell(self, command: EnergyCommand, *names: str) -> None:
        self.greta.told(Energy(command, names))
        self.greta_looks()

    def halt(self) -> None:
        """A round, and all that follows of it."""
        self.scheduler.round()
        self.change_states()
        self.greta_looks()

    def come(self, name: str) -> None:
        """A node says that it is back."""
        with self.database.begin() as tx:
            state_changes.welcome(tx, name)
        self.change_states()

    def pass_time(self, seconds: int) -> None:
        """Let everything that has happened be so much older."""
        with self.database.begin() as tx:
            tx.execute("UPDATE event_logs SET date = date - %s", (seconds,))
            tx.execute("UPDATE resource_logs SET date_start = date_start - %s", (seconds,))


@pytest.fixture
def plant(database: Database, runtime: Runtime, tmp_path: Path) -> Iterator[GretasPlant]:
    made = GretasPlant(at(database, NOW), runtime, tmp_path)
    yield made
    made.scheduler.close()


def test_each_node_is_taken_away_first_and_halted_then_by_a_command_of_its_own(plant: GretasPlant) -> None:
    add_resources(plant.database, nodes=2, cores=2, available_upto=FOR_EVER)
    plant.scheduler.round()
    assert plant.greta_looks().next == NOW + 2  # a job might still be on them
    assert plant.said("sleep") == []
    plant.change_states()
    assert plant.greta_looks().next is None
    assert sorted(plant.said("sleep")) == ["--own: node-1", "--own: node-2"]
    assert plant.events() == [("HALT_NODE", "NO", ["node-1", "node-2"])]
    plant.greta_looks()
    assert len(plant.said("sleep")) == 2


def test_the_runner_leaves_the_orders_to_greta(plant: GretasPlant) -> None:
    add_resources(plant.database, nodes=1, available_upto=FOR_EVER)
    plant.scheduler.round()
    plant.change_states()
    assert plant.carry_out() is None
    assert plant.said("sleep") == []
    assert plant.events() == [("HALT_NODE", "YES", ["node-1"])]


def test_a_node_is_woken_for_a_job_and_no_round_wakes_it_while_it_boots(plant: GretasPlant) -> None:
    add_resources(plant.database, nodes=2, available_upto=FOR_EVER, state="Absent")
    submit(plant.database, "/network_address=1")
    for later in (0, 601, 900):
        at(plant.database, NOW + later)
        plant.scheduler.round()
    assert plant.greta_looks().next is None
    assert plant.greta_looks().next is not None
    assert plant.said("wake") == ["--own: node-1"]
    plant.come("node-1")
    assert plant.greta_looks().next is None


def test_a_node_that_does_not_come_is_woken_once_more_and_given_up_then(plant: GretasPlant, sent: list[Effect]) -> None:
    add_resources(plant.database, nodes=1, available_upto=FOR_EVER, state="Absent")
    plant.configure(energy_saving_node_manager_wakeup_timeout=((1, 300),))
    plant.tell(EnergyCommand.WAKEUP, "node-1")
    assert plant.greta_looks().next == NOW + 300
    at(plant.database, NOW + 299)
    plant.greta_looks()
    assert len(plant.said("wake")) == 1
    at(plant.database, NOW + 300)
    plant.greta_looks()
    assert len(plant.said("wake")) == 2
    assert plant.states() == {"node-1": "Absent"}
    at(plant.database, NOW + 600)
    plant.greta_looks()
    assert len(plant.said("wake")) == 2
    plant.change_states()
    assert plant.states() == {"node-1": "Suspected"}
    mails = [each.text for each in sent if isinstance(each, Mail) and each.subject == "Nodes cannot be halted or woken"]
    assert mails == ["[Greta] woken 2 times in vain: node-1"]
    assert plant.greta_looks().next is None


def test_a_greta_that_was_killed_does_not_forget_when_a_node_should_be_there(plant: GretasPlant) -> None:
    add_resources(plant.database, nodes=1, available_upto=FOR_EVER, state="Absent")
    plant.tell(EnergyCommand.WAKEUP, "node-1")
    for later, wakes in ((899, 1), (900, 2), (1799, 2), (1800, 2)):
        at(plant.database, NOW + later)
        plant.greta = Greta()
        plant.greta_looks()
        assert len(plant.said("wake")) == wakes
    assert plant.states() == {"node-1": "Absent -> Suspected"}


@pytest.mark.parametrize("command", ["sleep", "wake"])
def test_what_a_killed_greta_was_at_is_done_again(plant: GretasPlant, command: str) -> None:
    """Killed before, while, and after the command runs: the order stays open until its end is stored."""
    state = "Alive" if command == "sleep" else "Absent"
    add_resources(plant.database, nodes=1, available_upto=FOR_EVER, state=state)
    if command == "sleep":
        plant.scheduler.round()
        plant.greta_looks(OF_A_WORKER)
        plant.greta = Greta()
        plant.change_states()
    else:
        plant.greta.told(Energy(EnergyCommand.WAKEUP, ("node-1",)))
    running = plant.directory / "running"
    plant.script(command, f"touch {running}; while [ -e {running} ]; do sleep 0.02; done")
    plant.greta_looks(OF_A_WORKER)
    wait_until(running.exists)
    killed, plant.greta = plant.greta, Greta()
    plant.script(command)
    plant.greta_looks()
    assert plant.said(command) == ["--own: node-1"] * 2
    assert [event[1] for event in plant.events()] == ["NO"]
    running.unlink()
    wait_until(lambda: killed.due() == 0)
    assert plant.states() == {"node-1": "Absent"}


def test_a_job_that_needs_a_node_while_it_is_halted_waits_for_its_wake(plant: GretasPlant) -> None:
    add_resources(plant.database, nodes=1, available_upto=FOR_EVER)
    plant.scheduler.round()
    plant.change_states()
    halting = plant.directory / "halting"
    plant.script("sleep", f"touch {halting}; while [ -e {halting} ]; do sleep 0.02; done")
    plant.greta_looks(OF_A_WORKER)
    wait_until(halting.exists)
    submit(plant.database, "/network_address=1")
    plant.scheduler.round()
    plant.greta_looks(OF_A_WORKER)
    assert plant.said("wake") == []
    halting.unlink()
    wait_until(lambda: plant.greta.due() == 0)
    plant.greta_looks()
    assert plant.said("wake") == ["--own: node-1"]


def test_no_node_is_halted_on_which_a_job_was_started_meanwhile(plant: GretasPlant) -> None:
    ids = add_resources(plant.database, nodes=2, available_upto=FOR_EVER)
    plant.scheduler.round()
    assert plant.states() == {"node-1": "Alive -> Absent", "node-2": "Alive -> Absent"}
    plant.change_states()
    submit(plant.database, state=JobState.RUNNING, on=ids[:1])  # a job that may run on a sleeping node
    plant.greta_looks()
    assert plant.said("sleep") == ["--own: node-2"]


def test_an_order_for_a_node_with_a_job_leaves_it_alive(plant: GretasPlant) -> None:
    ids = add_resources(plant.database, nodes=2, available_upto=FOR_EVER)
    submit(plant.database, state=JobState.RUNNING, on=ids[:1])
    with plant.database.begin() as tx:
        state_changes.order_halt(tx, ["node-1", "node-2"], "Greta", "a test")
    assert plant.states() == {"node-1": "Alive", "node-2": "Alive -> Absent"}
    assert plant.events() == [("HALT_NODE", "YES", ["node-2"])]


@pytest.mark.parametrize("command", ["sleep", "wake"])
@pytest.mark.parametrize(
    ("then", "trouble"),
    [("echo no power; exit 3", "no power"), ("sleep 100", "no end within 1 s"), ("kill -9 $$", "signal SIGKILL")],
)
def test_a_node_whose_command_fails_is_suspected_and_the_others_are_not(
    plant: GretasPlant, sent: list[Effect], command: str, then: str, trouble: str
) -> None:
    state = "Alive" if command == "sleep" else "Absent"
    add_resources(plant.database, nodes=2, available_upto=FOR_EVER, state=state)
    plant.configure(energy_saving_window_timeout=1 if then == "sleep 100" else 60)
    (plant.directory / command).write_text(f"#!/bin/sh\nread node; [ $node = node-2 ] && exit 0; {then}\n")
    if command == "sleep":
        plant.halt()
    else:
        plant.tell(EnergyCommand.WAKEUP, "node-1", "node-2")
    plant.change_states()
    assert plant.states() == {"node-1": "Suspected", "node-2": "Absent"}
    text = f"[Greta] {plant.directory}/{command} --own: {trouble}: node-1"
    mails = [each.text for each in sent if isinstance(each, Mail) and each.subject == "Nodes cannot be halted or woken"]
    assert mails == [text]
    rows = ask(plant.database, "SELECT description FROM event_logs WHERE type = 'LOG_SUSPECTED'")
    assert [row[0] for row in rows] == [text]


def test_a_command_that_cannot_be_started_suspects_its_node(plant: GretasPlant) -> None:
    add_resources(plant.database, nodes=1, available_upto=FOR_EVER, state="Absent")
    plant.configure(energy_saving_node_manager_wake_up_cmd="/no/such/program")
    plant.tell(EnergyCommand.WAKEUP, "node-1")
    plant.change_states()
    assert plant.states() == {"node-1": "Suspected"}


def test_a_node_that_is_made_alive_while_it_is_halted_is_woken(plant: GretasPlant) -> None:
    ids = add_resources(plant.database, nodes=1, available_upto=FOR_EVER)
    halting = plant.directory / "halting"
    plant.script("sleep", f"touch {halting}; while [ -e {halting} ]; do sleep 0.02; done")
    plant.scheduler.round()
    plant.change_states()
    plant.greta_looks(OF_A_WORKER)
    wait_until(halting.exists)
    with plant.database.begin() as tx:
        state_changes.ask_state(tx, ids, ResourceState.ALIVE)
    plant.change_states()
    halting.unlink()
    wait_until(lambda: plant.greta.due() == 0)
    plant.greta_looks()
    plant.change_states()
    plant.greta_looks()
    assert plant.states() == {"node-1": "Absent"}
    assert plant.said("wake") == ["--own: node-1"]


def test_a_window_has_so_many_commands_and_the_next_one_comes_later(
    plant: GretasPlant, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("oar.modules.greta.time", type("Clock", (), {"monotonic": staticmethod(lambda: clock[0])}))
    add_resources(plant.database, nodes=5, available_upto=FOR_EVER)
    plant.configure(energy_saving_window_size=2)
    plant.halt()
    assert sorted(plant.said("sleep")) == ["--own: node-1", "--own: node-2"]
    clock[0] += 20
    assert plant.greta_looks().next == NOW + 31
    assert len(plant.said("sleep")) == 2
    for number in (4, 5):
        clock[0] += 50
        plant.greta_looks()
        assert len(plant.said("sleep")) == number
    assert plant.events() == [("HALT_NODE", "NO", [f"node-{number}" for number in range(1, 6)])]


def test_one_command_may_have_all_nodes(plant: GretasPlant) -> None:
    add_resources(plant.database, nodes=3, available_upto=FOR_EVER)
    plant.configure(energy_saving_window_forker_bypass=True, energy_saving_window_size=1)
    plant.halt()
    assert plant.said("sleep") == ["--own: node-1 node-2 node-3"]


# -- nodes that are kept awake ----------------------------------------------------------------------------------------


def keep(plant: GretasPlant, number: int, condition: str = "type='default'") -> None:
    plant.configure(energy_saving_nodes_keepalive=((condition, number),))


def test_rounds_leave_so_many_idle_nodes_awake(plant: GretasPlant) -> None:
    ids = add_resources(plant.database, nodes=4, available_upto=FOR_EVER)
    submit(plant.database, state=JobState.RUNNING, on=ids[:1])
    keep(plant, 2)
    plant.halt()
    assert plant.said("sleep") == ["--own: node-2"]
    plant.halt()
    assert len(plant.said("sleep")) == 1


def test_nodes_are_woken_so_that_enough_idle_ones_are_awake(plant: GretasPlant) -> None:
    ids = add_resources(plant.database, nodes=5, cores=1, available_upto=FOR_EVER, state="Absent")
    with plant.database.begin() as tx:
        tx.execute("UPDATE resources SET state = 'Alive' WHERE resource_id = ANY(%s)", (ids[:2],))
        tx.execute("UPDATE resources SET available_upto = 0 WHERE resource_id = %s", (ids[2],))
    submit(plant.database, state=JobState.RUNNING, on=ids[:1])
    keep(plant, 2)
    for _ in range(3):  # a node that boots counts as awake
        plant.greta_looks()
    assert plant.said("wake") == ["--own: node-4"]
    plant.come("node-4")
    plant.greta_looks()
    assert len(plant.said("wake")) == 1


def test_a_condition_that_cannot_be_evaluated_lets_no_node_be_halted(plant: GretasPlant) -> None:
    add_resources(plant.database, nodes=2, available_upto=FOR_EVER)
    keep(plant, 1, "no_such_property = 1")
    plant.halt()
    plant.tell(EnergyCommand.HALT, "node-1")
    assert plant.states() == {"node-1": "Alive", "node-2": "Alive"}
    assert plant.events() == []


# -- programs of the site ---------------------------------------------------------------------------------------------


def test_a_program_of_the_site_halts_what_may_be_halted_and_wakes_what_may_be_woken(plant: GretasPlant) -> None:
    ids = add_resources(plant.database, nodes=7, cores=1, available_upto=FOR_EVER)
    with plant.database.begin() as tx:
        tx.execute("UPDATE resources SET state = 'Absent' WHERE resource_id = ANY(%s)", (ids[3:6],))
        tx.execute("UPDATE resources SET available_upto = 0 WHERE resource_id = ANY(%s)", ([ids[1], ids[4]],))
        tx.execute("UPDATE resources SET state = 'Suspected' WHERE resource_id = %s", (ids[6],))
    submit(plant.database, state=JobState.RUNNING, on=ids[:1])
    names = [f"node-{number}" for number in range(1, 9)] + ["node-3; rm -rf /", "$(id)", ""]
    plant.tell(EnergyCommand.HALT, *names)
    plant.tell(EnergyCommand.WAKEUP, *names)
    plant.tell(EnergyCommand.CHECK, *names)
    plant.change_states()
    plant.greta_looks()
    assert plant.said("sleep") == ["--own: node-3"]
    assert sorted(plant.said("wake")) == ["--own: node-4", "--own: node-6"]
    assert plant.events() == [("HALT_NODE", "NO", ["node-3"]), ("WAKEUP_NODE", "NO", ["node-4", "node-6"])]


def test_a_program_of_the_site_does_not_halt_the_last_nodes_that_are_kept_awake(plant: GretasPlant) -> None:
    add_resources(plant.database, nodes=3, available_upto=FOR_EVER)
    keep(plant, 2)
    plant.tell(EnergyCommand.HALT, "node-1", "node-2", "node-3")
    assert plant.states() == {"node-1": "Alive -> Absent", "node-2": "Alive", "node-3": "Alive"}


def test_if_a_program_of_the_site_decides_rounds_halt_and_wake_nothing(plant: GretasPlant, sent: list[Effect]) -> None:
    add_resources(plant.database, nodes=2, available_upto=FOR_EVER)
    plant.configure(energy_saving_mode="external")
    plant.scheduler.round()
    assert plant.states() == {"node-1": "Alive", "node-2": "Alive"}
    execute_sql(plant.database, "UPDATE resources SET state = 'Absent'")
    submit(plant.database, "/network_address=1")
    plant.scheduler.round()
    assert plant.events() == []
    assert Ask(JobAction.ENERGY, 0) not in sent


# -- between the passes -----------------------------------------------------------------------------------------------


def test_the_server_is_rung_when_a_command_has_ended_and_when_something_is_asked(plant: GretasPlant) -> None:
    rung: list[Effect] = []
    plant.database.deliver = rung.extend
    add_resources(plant.database, nodes=1, available_upto=FOR_EVER, state="Absent")
    assert plant.greta.due() is None
    plant.greta_looks(OF_A_WORKER)
    assert plant.greta.due() is None
    plant.greta.told(Energy(EnergyCommand.WAKEUP, ("node-1",)))
    assert plant.greta.due() == 0
    plant.greta.go_on()
    assert rung == [Energy(EnergyCommand.CHECK)]
    assert plant.greta.due() is None
    plant.greta_looks(OF_A_WORKER)
    wait_until(lambda: plant.greta.due() == 0)
    plant.greta_looks(OF_A_WORKER)
    assert plant.greta.due() is None
    assert plant.events() == [(EventType.WAKEUP_NODE, "NO", ["node-1"])]


def test_what_is_asked_while_the_database_is_away_is_not_lost(plant: GretasPlant) -> None:
    add_resources(plant.database, nodes=1, available_upto=FOR_EVER, state="Absent")
    plant.greta_looks()
    plant.greta.told(Energy(EnergyCommand.WAKEUP, ("node-1",)))
    begin = plant.database.begin

    def lost() -> None:
        raise ConnectionError

    plant.database.begin = lost  # type: ignore[assignment,method-assign]
    with pytest.raises(ConnectionError):
        plant.greta_looks()
    plant.database.begin = begin  # type: ignore[method-assign]
    plant.greta_looks()
    assert plant.said("wake") == ["--own: node-1"]


def test_a_node_that_sleeps_for_another_reason_does_not_boot(plant: GretasPlant) -> None:
    """It was woken, came, and was taken away by an administrator."""
    ids = add_resources(plant.database, nodes=1, available_upto=FOR_EVER, state="Absent")
    plant.tell(EnergyCommand.WAKEUP, "node-1")
    plant.come("node-1")
    at(plant.database, NOW + 60)
    with plant.database.begin() as tx:
        state_changes.begin_maintenance(tx, ids, by="root")
    plant.change_states()
    assert plant.greta_looks().next is None
    at(plant.database, NOW + 5000)
    plant.greta_looks()
    assert plant.states() == {"node-1": "Absent"}
    assert len(plant.said("wake")) == 1


def test_a_stuck_command_holds_only_its_own_node(plant: GretasPlant) -> None:
    add_resources(plant.database, nodes=2, available_upto=FOR_EVER, state="Absent")
    stuck = plant.directory / "stuck"
    stuck.touch()
    text = f"#!/bin/sh\nread node; [ $node = node-2 ] || while [ -e {stuck} ]; do sleep 0.02; done\n"
    (plant.directory / "wake").write_text(text)
    plant.greta.told(Energy(EnergyCommand.WAKEUP, ("node-1", "node-2")))
    plant.greta_looks(OF_A_WORKER)
    wait_until(lambda: plant.greta.due() == 0)
    begin = time.monotonic()
    plant.greta_looks(OF_A_WORKER)
    assert time.monotonic() - begin < 100  # it waits for no command, which may take 120
    plant.come("node-2")
    assert plant.states() == {"node-1": "Absent", "node-2": "Alive"}
    stuck.unlink()
    wait_until(lambda: plant.greta.due() == 0)

"""Idle nodes are halted, and woken when a job needs them: rounds decide, small real commands do it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from oar.kao.rounds.meta_sched import MetaScheduler
from oar.kao.rounds.reading.snapshot_reader import SnapshotReader
from oar.lib import logs
from oar.lib.bus.messages import Ask, Effect, JobAction, Mail, Tag, Wake
from oar.lib.config.files import parse
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs.states import JobState
from oar.lib.nodes import state_changes
from oar.lib.nodes.states import ResourceState
from oar.lib.runtime import Runtime, file_version
from oar.modules import node_change_state
from oar.modules.runner.actions import energy
from oar.modules.runner.actions.context import ActionContext, RetryAfter
from oar.modules.runner.bipbip import Bipbip
from oar.modules.runner.bipbip_pipe import RunAction
from oar.modules.runner.dispatch import Action, ActionKind
from tests.builders import add_resources, execute_sql, state_of
from tests.db.test_meta_sched import NOW, ask, at, job, submit
from tests.documents import SOURCE, named_blocks
from tests.process.this_machine import wait_until

FOR_EVER = 2147483646


class Plant:
    """A cluster whose nodes are halted and woken by two scripts, which write down what they are given."""

    def __init__(self, database: Database, runtime: Runtime, directory: Path) -> None:
        self.database = database
        self.directory = directory
        self.config = runtime.config.replace(
            scheduler_node_manager_sleep_cmd=self.script("sleep"),
            scheduler_node_manager_wake_up_cmd=self.script("wake"),
            scheduler_node_manager_idle_time=600,
            scheduler_node_manager_sleep_time=600,
            scheduler_timeout=30,
        )
        self.runtime = Runtime(self.config, database)
        self.scheduler = MetaScheduler(self.runtime)

    def script(self, name: str, then: str = "") -> str:
        """Write a command of the site that is called with an argument of its own."""
        path = self.directory / name
        said = self.directory / f"{name}.said"
        path.write_text(f'#!/bin/sh\necho "$*:" $(cat) >> {said}\n{then}\n')
        path.chmod(0o755)
        return f"{path} --own"

    def said(self, name: str) -> list[str]:
        """What a command was given: arguments, and stdin behind a colon."""
        path = self.directory / f"{name}.said"
        return path.read_text().splitlines() if path.exists() else []

    def carry_out(self) -> RetryAfter | None:
        """What the Runner does with the orders."""
        return energy.carry_out(
            ActionContext(
                self.config, self.database, cast(Any, None), lambda _: False, cast(Any, None), cast(Any, None)
            )
        )

    def change_states(self) -> None:
        node_change_state.run(Runtime(self.config.replace(job_resource_manager_property_db_field=None), self.database))

    def states(self) -> dict[str, str]:
        rows = ask(self.database, "SELECT network_address, min(state), max(next_state) FROM resources GROUP BY 1")
        return {row[0]: row[1] if row[2] == "UnChanged" else f"{row[1]} -> {row[2]}" for row in rows}

    def events(self) -> list[tuple[str, str, list[str]]]:
        rows = ask(
            self.database,
            "SELECT e.type, e.to_check, array_agg(h.hostname::text ORDER BY 1) FROM event_logs e"
            " JOIN event_log_hostnames h USING (event_id) WHERE e.type IN ('HALT_NODE', 'WAKEUP_NODE')"
            " GROUP BY e.event_id, e.type, e.to_check ORDER BY e.event_id",
        )
        return [(row[0], row[1], sorted(row[2])) for row in rows]


@pytest.fixture
def plant(database: Database, runtime: Runtime, tmp_path: Path) -> Iterator[Plant]:
    made = Plant(at(database, NOW), runtime, tmp_path)
    yield made
    made.scheduler.close()


def test_an_idle_node_is_taken_away_first_and_halted_then(plant: Plant, sent: list[Effect]) -> None:
    ids = add_resources(plant.database, nodes=3, cores=2, available_upto=FOR_EVER)
    submit(plant.database, state=JobState.RUNNING, on=ids[:1])
    plant.scheduler.round()
    assert plant.states() == {"node-1": "Alive", "node-2": "Alive -> Absent", "node-3": "Alive -> Absent"}
    assert plant.events() == [("HALT_NODE", "YES", ["node-2", "node-3"])]
    assert {Wake(Tag.CHSTATE), Ask(JobAction.ENERGY, 0)} <= set(sent)
    assert plant.carry_out() == RetryAfter(energy.AGAIN_SECONDS)  # a job might still be on them
    assert plant.said("sleep") == []
    plant.change_states()
    assert plant.carry_out() is None
    assert plant.said("sleep") == ["--own node-2 node-3: node-2 node-3"]
    assert plant.events() == [("HALT_NODE", "NO", ["node-2", "node-3"])]
    plant.scheduler.round()
    assert plant.carry_out() is None
    assert len(plant.said("sleep")) == 1


def test_the_end_of_a_job_and_nodes_that_boot_leave_what_is_known_of_resources_and_jobs(plant: Plant) -> None:
    first, second = add_resources(plant.database, nodes=2, cores=1, available_upto=FOR_EVER)
    reader = SnapshotReader(plant.database, plant.config)
    before = reader.read().snapshot
    assert before.used_lately == 0
    with plant.database.begin() as tx:
        tx.execute("UPDATE resources SET last_job_date = %s WHERE resource_id = %s", (NOW - 600, first))
        tx.execute("UPDATE resources SET last_job_date = %s WHERE resource_id = %s", (NOW - 601, second))
    after = reader.read().snapshot
    assert after.resources is before.resources
    assert after.used_lately == 0b01
    execute_sql(plant.database, "UPDATE resources SET state = 'Absent'")
    submit(plant.database, "/network_address=1")
    plant.scheduler.round()
    (waiting,) = reader.read().snapshot.waiting
    assert waiting.promised is not None
    at(plant.database, NOW + 10)
    plant.scheduler.round()
    assert reader.read().snapshot.waiting == (waiting,)


def test_a_command_that_is_configured_while_the_server_runs_is_run(plant: Plant) -> None:
    conf = plant.directory / "oar.conf"
    log = f"LOG_FILE={plant.directory / 'oar.log'}\n"
    conf.write_text(log)
    running = Runtime(parse(log).config, plant.database, str(conf), version=file_version(str(conf)))
    bipbip = Bipbip(running, cast(Any, None), lambda _: None)
    add_resources(plant.database, nodes=1, available_upto=FOR_EVER)
    plant.scheduler.round()
    plant.change_states()
    with logs.logging_to(running.config, "Bipbip"):
        for text in (f'SCHEDULER_NODE_MANAGER_SLEEP_CMD="{plant.script("sleep")}"\n', "LOG_LEVEL=much\n"):
            conf.write_text(log + text)
            with ThreadPoolExecutor() as pool:
                bipbip.take(RunAction(Action(ActionKind.ENERGY)), pool)
    assert plant.said("sleep") == ["--own node-1: node-1"]
    assert "the old values stay" in (plant.directory / "oar.log").read_text()


def test_a_sleeping_node_is_woken_for_a_job_once_in_the_time_that_it_needs(plant: Plant) -> None:
    add_resources(plant.database, nodes=2, cores=2, available_upto=FOR_EVER, state="Absent")
    number = submit(plant.database, "/network_address=1")
    plant.scheduler.round()
    assert state_of(plant.database, number) is JobState.WAITING
    assert job(plant.database, number, "scheduler_info") == "waiting for node-1 to be Alive"
    assert plant.carry_out() is None
    assert plant.said("wake") == ["--own node-1: node-1"]
    for later in (10, 600):
        at(plant.database, NOW + later)
        plant.scheduler.round()
        plant.carry_out()
        assert len(plant.said("wake")) == 1
    at(plant.database, NOW + 601)
    plant.scheduler.round()
    plant.carry_out()
    assert plant.said("wake") == ["--own node-1: node-1"] * 2
    plant.change_states()
    execute_sql(plant.database, "UPDATE resources SET state = 'Alive' WHERE network_address = 'node-1'")
    plant.scheduler.round()
    assert state_of(plant.database, number) is JobState.TO_LAUNCH


def test_a_node_that_does_not_wake_is_given_up_and_another_one_woken(plant: Plant, sent: list[Effect]) -> None:
    add_resources(plant.database, nodes=2, available_upto=FOR_EVER, state="Absent")
    submit(plant.database, "/network_address=1")
    for later in (0, 601, 1202, 1202):
        at(plant.database, NOW + later)
        plant.scheduler.round()
        plant.carry_out()
    assert plant.states() == {"node-1": "Absent -> Suspected", "node-2": "Absent"}
    mails = [each.text for each in sent if isinstance(each, Mail) and each.subject == "Nodes cannot be halted or woken"]
    assert mails == ["[MetaSched] woken 2 times in vain: node-1"]
    plant.change_states()
    plant.scheduler.round()
    plant.carry_out()
    assert plant.states() == {"node-1": "Suspected", "node-2": "Absent"}
    assert plant.said("wake") == ["--own node-1: node-1"] * 2 + ["--own node-2: node-2"]


def test_a_job_waits_for_the_nodes_that_were_woken_for_it(plant: Plant) -> None:
    add_resources(plant.database, nodes=3, cores=1, available_upto=FOR_EVER, state="Absent")
    number = submit(plant.database, "/network_address=2")
    plant.scheduler.round()
    execute_sql(plant.database, "UPDATE resources SET scheduler_priority = 5 WHERE network_address = 'node-1'")
    plant.scheduler.round()
    assert sorted(job(plant.database, number, "scheduler_info").split()[2].split(",")) == ["node-1", "node-2"]
    assert plant.events() == [("WAKEUP_NODE", "YES", ["node-1", "node-2"])]


def test_a_node_that_was_halted_since_it_was_woken_is_woken_at_once(plant: Plant) -> None:
    add_resources(plant.database, nodes=1, available_upto=FOR_EVER, state="Absent")
    with plant.database.begin() as tx:
        for type_ in (EventType.WAKEUP_NODE, EventType.HALT_NODE):
            tx.events.add(type_, 0, "", hosts=["node-1"])
    submit(plant.database, "/network_address=1")
    plant.scheduler.round()
    plant.carry_out()
    assert plant.said("wake") == ["--own node-1: node-1"]


def test_a_node_that_is_needed_while_it_goes_is_halted_before_it_is_woken(plant: Plant) -> None:
    add_resources(plant.database, nodes=1, available_upto=FOR_EVER)
    plant.scheduler.round()
    submit(plant.database, "/network_address=1")
    plant.scheduler.round()
    assert plant.carry_out() == RetryAfter(energy.AGAIN_SECONDS)
    plant.change_states()
    assert plant.carry_out() is None
    assert (plant.said("sleep"), plant.said("wake")) == (["--own node-1: node-1"], ["--own node-1: node-1"])


def test_a_node_that_somebody_wants_alive_again_is_not_halted(plant: Plant) -> None:
    ids = add_resources(plant.database, nodes=1, available_upto=FOR_EVER)
    plant.scheduler.round()
    with plant.database.begin() as tx:
        tx.resources.ask_state(ids, ResourceState.ALIVE)
    plant.change_states()
    assert plant.carry_out() is None
    assert plant.said("sleep") == []
    assert plant.events() == [("HALT_NODE", "NO", ["node-1"])]


@pytest.mark.parametrize(("wake", "then"), [(True, ["--own node-1: node-1"]), (False, [])])
def test_a_node_that_is_made_alive_while_it_is_halted_is_no_trap(plant: Plant, wake: bool, then: list[str]) -> None:
    ids = add_resources(plant.database, nodes=1, available_upto=FOR_EVER)
    command = plant.config.scheduler_node_manager_wake_up_cmd if wake else None
    plant.config = plant.config.replace(scheduler_node_manager_wake_up_cmd=command, scheduler_timeout=60)
    halting_file = plant.directory / "halting"
    plant.script("sleep", f"touch {halting_file}; while [ -e {halting_file} ]; do sleep 0.02; done")
    plant.scheduler.round()
    plant.change_states()
    with ThreadPoolExecutor() as pool:
        halting = pool.submit(plant.carry_out)
        wait_until(halting_file.exists)
        with plant.database.begin() as tx:
            state_changes.ask_state(tx, ids, ResourceState.ALIVE)
        plant.change_states()
        halting_file.unlink()
        halting.result()
    plant.change_states()
    assert plant.states() == {"node-1": "Absent" if wake else "Suspected"}
    assert plant.carry_out() is None
    assert plant.said("wake") == then


@pytest.mark.parametrize(
    ("then", "trouble"),
    [("echo no power; exit 3", "no power"), ("sleep 100", "no end within 1 s"), ("exit 4", "exit code 4")],
)
def test_a_node_that_cannot_be_halted_is_suspected_and_the_administrator_told(
    plant: Plant, sent: list[Effect], then: str, trouble: str
) -> None:
    add_resources(plant.database, nodes=1, available_upto=FOR_EVER)
    plant.script("sleep", then)
    plant.config = plant.config.replace(scheduler_timeout=1 if then == "sleep 100" else 30)
    plant.scheduler.round()
    plant.change_states()
    assert plant.carry_out() is None
    plant.change_states()
    assert plant.states() == {"node-1": "Suspected"}
    mails = [each for each in sent if isinstance(each, Mail) and each.subject == "Nodes cannot be halted or woken"]
    assert mails[0].text == f"{plant.directory}/sleep --own node-1: {trouble}"


@pytest.mark.parametrize("name", ["energy", "greta"])
def test_the_keys_of_the_guide_are_understood(name: str) -> None:
    parsed = parse(named_blocks(SOURCE / "docs" / "administrator-guide.rst")[name])
    assert (parsed.errors, parsed.warnings) == ((), ())
    assert parsed.config.may_halt
    assert parsed.config.may_wake

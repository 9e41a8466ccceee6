"""Greta switches nodes off and on for real: machines end and boot, commands hang and fail, and Greta is killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import own_room
from tests.acceptance.faults import Machine, processes_of
from tests.acceptance.harness import Cluster, wait_until

SETTINGS = {
    "ENERGY_SAVING_INTERNAL": "yes",
    "ENERGY_SAVING_NODE_MANAGER_SLEEP_CMD": "/home/site/power off",
    "ENERGY_SAVING_NODE_MANAGER_WAKE_UP_CMD": "/home/site/power on",
    "ENERGY_SAVING_NODES_KEEPALIVE": "type='default':1",
    "ENERGY_SAVING_WINDOW_TIME": 1,
    "ENERGY_SAVING_WINDOW_TIMEOUT": 60,  # far more than a machine needs that is busy
    "SCHEDULER_NODE_MANAGER_IDLE_TIME": 1,
    "SCHEDULER_NODE_MANAGER_SLEEP_TIME": 1,
    "GRETA_PORT": 6672,
    "LOG_LEVEL": 3,
}
NODES = ("node-1", "node-2", "node-3")

#: The command of the site: it asks the controllers of the nodes, and waits for them.
POWER = """#!/bin/sh
read -r node
echo "$1 $node" >>/home/site/said
if [ -e /home/site/hang-$node ]; then exec sleep 1000; fi
if [ -e /home/site/fail-$node ]; then echo "no such socket"; exit 3; fi
echo "$1 $node" >/home/site/controllers/.$1-$node.$$
mv /home/site/controllers/.$1-$node.$$ /home/site/controllers/$1-$node
while [ -e /home/site/controllers/$1-$node ]; do sleep 0.05; done
"""


class Controllers:
    """The management controllers of the nodes: they do what the site's command asks, and a node that boots says so."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._home = Machine(cluster, "server").path("/home/site")
        self._is_over = threading.Event()
        self.may_act = threading.Event()  #: else they take orders and do nothing
        self.may_act.set()
        self.deaf: set[str] = set()  #: nodes that do not boot
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.may_act.set()
        self._is_over.set()
        self._thread.join()

    @property
    def orders(self) -> list[str]:
        """The orders that are being carried out."""
        return sorted(file.name for file in (self._home / "controllers").glob("o*-*"))

    def said(self) -> list[str]:
        """What the command was told, in order."""
        file = self._home / "said"
        return file.read_text().splitlines() if file.exists() else []

    def trouble(self, kind: str, node: str) -> Path:
        """The file that makes the command hang or fail for a node."""
        return self._home / f"{kind}-{node}"

    def _serve(self) -> None:
        while not self._is_over.wait(0.05):
            if self.may_act.is_set():
                for name in self.orders:
                    verb, _, node = name.partition("-")
                    self._switch(node, is_on=verb == "on")
                    (self._home / "controllers" / name).unlink(missing_ok=True)

    def _switch(self, name: str, *, is_on: bool) -> None:
        """Do it; what is as it should be stays so."""
        node = self._cluster.node(name)
        is_up = self._cluster.status()["machines"][name]["state"] == "up"
        if not is_on and is_up:
            node.do("power-off")
        elif is_on and name not in self.deaf:
            if not is_up:
                node.do("reboot")
            self._cluster.as_user("root").run(f"oarnodesetting -s Alive -h {name}")


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, Controllers]]:
    """A cluster of three nodes of one core, of which idle ones are switched off but for one."""
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    with own_room(request, "energy", "--nodes", "3", "--cores", "1", "--fast-db", *settings) as made:
        root = made.as_user("root")
        root.run("install -d -o oar /home/site /home/site/controllers")
        root.run("cat >/home/site/power; chmod 755 /home/site/power", stdin=POWER)
        controllers = Controllers(made)
        root.run("oarnodesetting --sql true -p available_upto=2147483646")
        yield made, controllers
        controllers.close()


class Scene:
    """What one test does with the site."""

    def __init__(self, cluster: Cluster, controllers: Controllers) -> None:
        self.cluster = cluster
        self.controllers = controllers
        self.root = cluster.as_user("root")
        self.alice = cluster.as_user("alice")

    def states(self) -> dict[str, str]:
        return dict(self.cluster.sql("SELECT network_address, state FROM resources ORDER BY 1"))

    def machines(self) -> dict[str, bool]:
        """Each node, with whether its machine is up."""
        machines = self.cluster.status()["machines"]
        return {name: machines[name]["state"] == "up" for name in NODES}

    def is_economical(self) -> bool:
        """Whether one node is awake, the others are off, and nothing is to be done about that."""
        states = self.states()
        open_orders = self.cluster.sql(
            "SELECT 1 FROM event_logs WHERE to_check = 'YES' AND type ~ '^(HALT|WAKEUP)_NODE'"
        )
        return (
            sorted(states.values()) == ["Absent", "Absent", "Alive"]
            and not open_orders
            and self.machines() == {name: states[name] == "Alive" for name in NODES}
        )

    def rest(self) -> None:
        """Wait until what nobody needs is off."""
        wait_until(lambda: self.root.run("oarnotify Term") or self.is_economical(), self.told)

    def told(self) -> object:
        events = self.cluster.sql(
            "SELECT e.event_id, e.type, e.to_check, e.description FROM event_logs e ORDER BY 1 DESC LIMIT 12"
        )
        return self.states(), self.machines(), self.controllers.said()[-6:], self.controllers.orders, events

    def kill_greta(self) -> None:
        killed = wait_until(lambda: processes_of(self.cluster, "greta"))  # and perhaps a child that she just forks
        for process in killed:
            process.kill()
        wait_until(lambda: not {*killed} & {*processes_of(self.cluster, "greta")})

    def run_everywhere(self) -> None:
        """Run a job that needs all nodes."""
        job = self.alice.submit("-l nodes=3,walltime=0:10 'sort -u $OAR_NODEFILE >everywhere'")
        self.cluster.wait_for_state(job, "Terminated")
        assert self.alice.run("cat everywhere").split() == list(NODES)

    def revive(self, name: str) -> None:
        """An administrator looks after a node."""
        self.root.run(f"oarnodesetting -s Alive -h {name}")
        wait_until(lambda: self.states()[name] == "Alive", self.told)


@pytest.fixture
def scene(site: tuple[Cluster, Controllers]) -> Scene:
    made = Scene(*site)
    made.rest()
    return made


def test_idle_nodes_are_off_but_one_and_boot_for_a_job(scene: Scene) -> None:
    suspicions = "SELECT count(*) FROM event_logs WHERE type = 'LOG_SUSPECTED'"
    before = scene.cluster.sql(suspicions)
    scene.run_everywhere()
    scene.rest()
    assert scene.cluster.sql(suspicions) == before


def test_a_node_boots_as_soon_as_the_last_idle_one_has_a_job(scene: Scene) -> None:
    job = scene.alice.submit("-l nodes=1,walltime=0:10 'sleep 1000'")
    scene.cluster.wait_for_state(job, "Running")
    wait_until(lambda: sorted(scene.states().values()) == ["Absent", "Alive", "Alive"], scene.told)
    scene.alice.run(f"oardel {job}")
    scene.cluster.wait_for_state(job, "Error")


@pytest.mark.parametrize("moment", ["off ordered", "on ordered", "booting"])
def test_a_greta_that_is_killed_loses_no_node(scene: Scene, moment: str) -> None:
    controllers = scene.controllers
    if moment == "off ordered":
        scene.run_everywhere()
        controllers.may_act.clear()
        wait_until(lambda: scene.root.run("oarnotify Term") or controllers.orders, scene.told)
    else:
        controllers.may_act.clear()
        job = scene.alice.submit("-l nodes=3,walltime=0:10 true")
        wait_until(lambda: len(controllers.orders) == 2, scene.told)
        if moment == "booting":
            controllers.may_act.set()
    scene.kill_greta()
    controllers.may_act.set()
    if moment != "off ordered":
        scene.cluster.wait_for_state(job, "Terminated")
    scene.rest()
    scene.run_everywhere()


def test_a_greta_that_is_killed_again_and_again_halts_no_node_with_a_job(scene: Scene) -> None:
    jobs = []
    for _ in range(5):
        jobs.append(scene.alice.submit("-l nodes=2,walltime=0:10 'sleep 1; hostname'"))
        scene.kill_greta()
        scene.root.run("oarnotify Term")
    for job in jobs:
        scene.cluster.wait_for_state(job, "Terminated")
    scene.rest()


@pytest.mark.parametrize(("kind", "word"), [("fail", "no such socket"), ("hang", "no end within 60 s")])
def test_a_node_whose_command_fails_or_hangs_is_suspected_and_the_job_runs_elsewhere(
    scene: Scene, kind: str, word: str
) -> None:
    asleep = next(name for name, state in scene.states().items() if state == "Absent")
    file = scene.controllers.trouble(kind, asleep)
    file.touch()
    job = scene.alice.submit("-l nodes=2,walltime=0:10 true")
    other = scene.alice.submit("-l nodes=3,walltime=0:10 true")
    scene.cluster.wait_for_state(job, "Terminated")
    wait_until(lambda: scene.states()[asleep] == "Suspected", scene.told)
    events = scene.root.run(f"oarnodes -e last {asleep}")
    assert word in events
    file.unlink()
    scene.cluster.node(asleep).do("reboot")
    scene.revive(asleep)
    scene.cluster.wait_for_state(other, "Terminated")


def test_a_program_of_the_site_switches_nodes(scene: Scene) -> None:
    asleep = next(name for name, state in scene.states().items() if state == "Absent")
    before = len(scene.controllers.said())
    order = f'{{"cmd": "WAKEUP", "nodes": ["{asleep}", "node-9", "; reboot"]}}'
    program = (
        "import sys, zmq\n"
        "with zmq.Context() as context:  # its end waits until the order has been sent\n"
        "    socket = context.socket(zmq.PUSH)\n"
        "    socket.connect('tcp://localhost:6672')\n"
        "    socket.send(sys.stdin.read().encode())\n"
        "    socket.close(20000)\n"
    )
    scene.root.run("cat >/home/site/order.py", stdin=program)
    python = processes_of(scene.cluster, "almighty")[0].command.split()[0]
    scene.root.run(f"{python} /home/site/order.py", stdin=order)
    wait_until(lambda: scene.controllers.said()[before:], scene.told)
    assert scene.controllers.said()[before] == f"on {asleep}"
    assert not [line for line in scene.controllers.said() if "node-9" in line or "reboot" in line]

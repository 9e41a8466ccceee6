"""From what machines say of themselves to the resources to create: oar/lib/nodes/machine_descriptions.py."""

import os
import subprocess
from pathlib import Path

import pytest

from oar.lib.nodes.machine_descriptions import FoundThread, read, units_of
from oar.lib.nodes.topology import BadTopology

PROBE = Path(__file__).parent.parent.parent / "oar" / "tools" / "describe_machine.sh"
#: Two processors of two cores with two threads, as the kernel numbers them; and four GPUs.
BOTH = """memory 131072001
thread 0 0 0
thread 0 1 2
thread 1 0 1
thread 1 1 3
thread 0 0 4
thread 0 1 6
thread 1 0 5
thread 1 1 7
gpu 3
gpu 0
gpu 1
gpu 2
"""
NUMBERS = {"cpu": 10, "core": 20, "thread": 40, "gpu": 8}


def test_a_resource_is_a_core_with_its_threads() -> None:
    units, last = units_of("n1", read(BOTH), NUMBERS, each_thread=False)
    assert [(unit.cpu, unit.core, unit.thread, unit.cpuset) for unit in units] == [
        (11, 21, None, "0,4"),
        (11, 22, None, "2,6"),
        (12, 23, None, "1,5"),
        (12, 24, None, "3,7"),
    ]
    assert [(unit.gpu, unit.gpudevice) for unit in units] == [(9, "0"), (10, "1"), (11, "2"), (12, "3")]
    assert last == {"cpu": 12, "core": 24, "thread": 48, "gpu": 12}


def test_or_a_thread() -> None:
    units, last = units_of("n1", read(BOTH), {}, each_thread=True)
    assert [(unit.core, unit.thread, unit.cpuset) for unit in units[:4]] == [
        (1, 1, "0"),
        (1, 2, "4"),
        (2, 3, "2"),
        (2, 4, "6"),
    ]
    assert sorted(unit.thread or 0 for unit in units) == [*range(1, 9)]
    assert last["thread"] == 8


def test_one_gpu_is_shared_and_no_gpu_is_named_where_there_is_none() -> None:
    without = BOTH.partition("gpu")[0]
    units, _ = units_of("n1", read(f"{without}gpu 5\n"), {}, each_thread=False)
    assert {(unit.gpu, unit.gpudevice) for unit in units} == {(1, "5")}
    units, last = units_of("n1", read(without), {}, each_thread=False)
    assert {(unit.gpu, unit.gpudevice) for unit in units} == {(None, None)}
    assert last["gpu"] == 0


def test_memory_is_rounded_up() -> None:
    assert read(BOTH).memory == 126
    assert read("memory 1048576\nthread 0 0 0").memory == 1


@pytest.mark.parametrize(
    "text",
    [
        *("", "memory 5", "thread 0 0 0", "memory 5\nmemory 6\nthread 0 0 0", "memory x\nthread 0 0 0"),
        *("memory 5\nthread 0 0", "memory 5\nthread 0 0 0 0", "memory 5\nthread 0 -1 0", "memory 5\nthread 0 0 ٣"),
        "memory 5\nthread 0 0 9999999999",
    ],
)
def test_what_is_not_a_description(text: str) -> None:
    with pytest.raises(BadTopology):
        read(text)


def test_a_greeting_does_no_harm() -> None:
    assert read(f"Welcome to n1!\n\n{BOTH}").threads[0] == FoundThread(0, 0, 0)


def test_a_real_machine_describes_itself() -> None:
    done = subprocess.run(["sh", "-s"], input=PROBE.read_bytes(), capture_output=True, check=True)
    found = read(done.stdout.decode())
    assert {thread.number for thread in found.threads} >= os.sched_getaffinity(0)
    assert found.memory > 0

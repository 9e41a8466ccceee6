"""From a description of machines to the resources to create: oar/lib/nodes/topology.py."""

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from oar.lib.nodes.topology import (
    BadTopology,
    FoundThread,
    Machines,
    parse_description,
    property_types,
    units,
    units_of_machine,
)

TWO_BY_FOUR = Machines(hosts=2, cpus=2, cores=4)


def refused(**description: object) -> str:
    """Return why machines are refused."""
    with pytest.raises(BadTopology) as error:
        units(dataclasses.replace(TWO_BY_FOUR, **description))  # type: ignore[arg-type]
    return str(error.value)


def cpusets(**description: object) -> list[str]:
    """Return the cpusets of one machine with some threads."""
    machines = dataclasses.replace(TWO_BY_FOUR, hosts=1, **description)  # type: ignore[arg-type]
    return [unit.cpuset for unit in units(machines)]


def test_one_resource_for_each_core() -> None:
    found = units(TWO_BY_FOUR)
    assert len(found) == 16
    assert dict(found[0].properties) == {"host": "node-1", "cpu": 1, "core": 1, "cpuset": "0"}
    assert dict(found[-1].properties) == {"host": "node-2", "cpu": 4, "core": 16, "cpuset": "7"}


def test_numbers_are_unique_over_the_cluster_and_cpusets_over_the_node() -> None:
    found = units(dataclasses.replace(TWO_BY_FOUR, threads=2, each_thread=True))
    assert sorted(unit.thread or 0 for unit in found) == list(range(1, 33))
    assert {unit.core for unit in found} == set(range(1, 17))
    assert sorted(int(unit.cpuset) for unit in found if unit.host == "node-1") == list(range(16))


def test_the_threads_of_a_core_are_one_cpuset_if_they_are_no_resources() -> None:
    assert cpusets(threads=2)[:2] == ["0,8", "1,9"]


def test_processors_in_turn() -> None:
    assert cpusets(cpu_topology="RR") == ["0", "2", "4", "6", "1", "3", "5", "7"]
    assert cpusets(cpu_topology="rr", threads=2)[4] == "1,9"


def test_cpusets_as_they_are_listed() -> None:
    assert cpusets(cores=2, cpu_topology="3,1,2,0") == ["3", "1", "2", "0"]
    assert "Bad definition of CPU topology" in refused(cpu_topology="0,1,2")
    assert "Bad definition of CPU topology" in refused(cores=1, cpu_topology="0,x")


def test_first_numbers() -> None:
    first = units(dataclasses.replace(TWO_BY_FOUR, first_host=7, first_cpu=20, first_core=50, suffix=".site"))[0]
    assert (first.host, first.cpu, first.core) == ("node-7.site", 20, 50)


def test_gpus_are_shared_out_over_the_cores() -> None:
    found = units(dataclasses.replace(TWO_BY_FOUR, gpus=4))
    assert [(unit.gpu, unit.gpudevice) for unit in found[:8:2]] == [(1, "0"), (2, "1"), (3, "2"), (4, "3")]
    assert (found[8].gpu, found[8].gpudevice) == (5, "0")
    named = units(dataclasses.replace(TWO_BY_FOUR, gpus=2, gpu_topology="1,0"))
    assert [unit.gpudevice for unit in named[:8:4]] == ["1", "0"]


def test_a_single_gpu_is_everybodys() -> None:
    assert {unit.gpu for unit in units(dataclasses.replace(TWO_BY_FOUR, hosts=1, gpus=1))} == {1}


def test_what_cannot_be() -> None:
    assert refused(hosts=0) == "Syntax error, need a # of host."
    assert "must be positive" in refused(cores=0)
    assert "Cannot manage the requested GPU configuration" in refused(gpus=3)
    assert "Cannot manage the requested GPU configuration" in refused(gpus=6)
    assert "Bad definition of GPU topology" in refused(gpus=2, gpu_topology="0")
    many = "These machines have 8000000 threads: at most 1000000 are described at once."
    assert refused(hosts=1_000_000) == refused(cpus=1_000_000) == many
    assert refused(threads=1_000_000, hosts=1) == many


def test_which_properties_are_needed() -> None:
    assert property_types(TWO_BY_FOUR) == {"host": True, "cpu": False, "core": False}
    assert set(property_types(dataclasses.replace(TWO_BY_FOUR, gpus=1, each_thread=True))) == {
        "host", "cpu", "core", "thread", "gpu", "gpudevice",
    }  # fmt: skip


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
    units, last = units_of_machine("n1", parse_description(BOTH), NUMBERS, each_thread=False)
    assert [(unit.cpu, unit.core, unit.thread, unit.cpuset) for unit in units] == [
        (11, 21, None, "0,4"),
        (11, 22, None, "2,6"),
        (12, 23, None, "1,5"),
        (12, 24, None, "3,7"),
    ]
    assert [(unit.gpu, unit.gpudevice) for unit in units] == [(9, "0"), (10, "1"), (11, "2"), (12, "3")]
    assert last == {"cpu": 12, "core": 24, "thread": 48, "gpu": 12}


def test_or_a_thread() -> None:
    units, last = units_of_machine("n1", parse_description(BOTH), {}, each_thread=True)
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
    units, _ = units_of_machine("n1", parse_description(f"{without}gpu 5\n"), {}, each_thread=False)
    assert {(unit.gpu, unit.gpudevice) for unit in units} == {(1, "5")}
    units, last = units_of_machine("n1", parse_description(without), {}, each_thread=False)
    assert {(unit.gpu, unit.gpudevice) for unit in units} == {(None, None)}
    assert last["gpu"] == 0


def test_memory_is_rounded_up() -> None:
    assert parse_description(BOTH).memory == 126
    assert parse_description("memory 1048576\nthread 0 0 0").memory == 1


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
        parse_description(text)


def test_a_greeting_does_no_harm() -> None:
    assert parse_description(f"Welcome to n1!\n\n{BOTH}").threads[0] == FoundThread(0, 0, 0)


def test_a_real_machine_describes_itself() -> None:
    done = subprocess.run(["sh", "-s"], input=PROBE.read_bytes(), capture_output=True, check=True)
    found = parse_description(done.stdout.decode())
    assert {thread.number for thread in found.threads} >= os.sched_getaffinity(0)
    assert found.memory > 0

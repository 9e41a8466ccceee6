"""What a node reports of its jobs over time: from control groups, and from the drivers of GPUs."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import node_base
import node_cgroups
import node_curves
import node_gpus
import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_curves import Watch

from oar.lib.jobs.usage import count_gpus
from oar.lib.remote.bootstrap import TOOLS

PERIOD = 30


class Tree:
    """Directories as those of a tree of version 2, and the runtime directory of the node."""

    def __init__(self, directory: Path) -> None:
        self.mount = directory / "cgroup"
        self.runtime = directory / "run"
        (self.mount / "oar").mkdir(parents=True)
        self.runtime.mkdir()
        self.now = 1000.0

    def use(self, group: str, cpu_us: int, memory: int, payload: str = "payload") -> None:
        """Let a job have used so much."""
        leaf = self.mount / "oar" / group / payload
        leaf.mkdir(parents=True, exist_ok=True)
        (leaf / "cpu.stat").write_text(f"usage_usec {cpu_us}\nuser_usec 0\n")
        (leaf / "memory.current").write_text(f"{memory}\n")

    def remove(self, group: str) -> None:
        subprocess.run(["rm", "-r", self.mount / "oar" / group], check=True)

    def watch(self, drivers: node_gpus.Drivers | None = None) -> Watch:
        none = node_gpus.Drivers("no-such-library.so", str(self.mount / "none*"))
        return Watch(node_cgroups.GroupsV2(str(self.mount), "/oar"), str(self.runtime), drivers or none)

    def sample(self, watch: Watch) -> Any:
        self.now += PERIOD
        return watch.sample(self.now)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_job_is_told_from_its_second_sample_on(tree: Tree) -> None:
    watch = tree.watch()
    assert tree.sample(watch) is None
    tree.use("alice_7", 1_000_000, 4096)
    assert tree.sample(watch) is None
    tree.use("alice_7", 31_000_000, 8192)
    tree.use("bob_8", 5_000_000, 100)
    assert tree.sample(watch) == {"seconds": PERIOD, "jobs": [[7, 30_000, 8192]]}
    tree.use("bob_8", 5_500_000, 100)
    assert tree.sample(watch) == {"seconds": PERIOD, "jobs": [[7, 0, 8192], [8, 500, 100]]}


def test_a_job_that_is_shorter_than_a_period_is_never_told(tree: Tree) -> None:
    watch = tree.watch()
    for number in range(5):
        tree.use(f"alice_{number}", 10, 10)
        assert tree.sample(watch) is None
        tree.remove(f"alice_{number}")


def test_jobs_in_a_shared_group_are_told_apart(tree: Tree) -> None:
    watch = tree.watch()
    for _ in range(2):
        tree.use("alice_mine", 1000, 1, "payload_11")
        tree.use("alice_mine", 2000, 2, "payload_12")
        told = tree.sample(watch)
    assert told["jobs"] == [[11, 0, 1], [12, 0, 2]]


def test_a_user_whose_name_ends_like_a_job_is_no_job(tree: Tree) -> None:
    watch = tree.watch()
    for _ in range(2):
        tree.use("user_1_shared", 1000, 1, "payload_5")
        tree.use("user_1_2", 1000, 1)
        told = tree.sample(watch)
    assert [row[0] for row in told["jobs"]] == [2, 5]


def test_what_the_kernel_does_not_tell_is_null(tree: Tree) -> None:
    watch = tree.watch()
    (tree.mount / "oar" / "alice_7" / "payload").mkdir(parents=True)
    tree.sample(watch)
    assert tree.sample(watch)["jobs"] == [[7, None, None]]


def test_a_group_that_was_made_again_uses_nothing_negative(tree: Tree) -> None:
    watch = tree.watch()
    tree.use("alice_7", 9_000_000, 1)
    tree.sample(watch)
    tree.use("alice_7", 1_000, 1)
    assert tree.sample(watch)["jobs"] == [[7, 0, 1]]


NVML = """
static int count;
struct use { unsigned gpu, memory; };
struct memory { unsigned long long total, free, used; };
int nvmlInit_v2(void) { count++; return 0; }
int nvmlShutdown(void) { count--; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = count == 1 ? 3 : 0; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **gpu) { *gpu = (void *)(i + 1L); return i > 1; }
int nvmlDeviceGetMinorNumber(void *device, unsigned *n) { *n = 4 + (long)device; return 0; }
int nvmlDeviceGetUUID(void *gpu, char *text, unsigned size) { text[0] = 'G'; text[1] = '0' + (long)gpu; return 0; }
int nvmlDeviceGetUtilizationRates(void *device, struct use *use) { use->gpu = 40 * (long)device; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, struct memory *m) { m->used = 1000 * (long)device; return (long)device == 2; }
"""


@pytest.fixture(scope="session")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library with the functions of NVML, and two GPUs."""
    directory = tmp_path_factory.mktemp("nvml")
    (directory / "nvml.c").write_text(NVML)
    path = directory / "libnvml.so"
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", path, directory / "nvml.c"], check=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("no C compiler")
    return str(path)


def test_nvidia_s_library_is_asked(nvml: str) -> None:
    drivers = node_gpus.Drivers(nvml, "/none*")
    for _ in range(2):  # it is left after each look
        assert drivers.read() == {"5": (400, 1000), "G1": (400, 1000), "6": (800, None), "G2": (800, None)}


def amd_gpu(directory: Path, render: int, card: int, busy: int | str, used: int) -> None:
    """Make the files of an AMD GPU with these numbers of its render node and its card."""
    device = directory / f"renderD{render}" / "device"
    (device / "drm" / f"card{card}").mkdir(parents=True)
    (device / "drm" / f"renderD{render}").mkdir()
    (device / "gpu_busy_percent").write_text(f"{busy}\n")
    (device / "mem_info_vram_used").write_text(f"{used}\n")


def amd_drivers(directory: Path) -> node_gpus.Drivers:
    return node_gpus.Drivers("no-such-library.so", f"{directory}/renderD*/device/gpu_busy_percent")


def write_gpus(tree: Tree, job_id: int, *values: str) -> None:
    """Write the resources of a job on node gpu-1 with these values of gpudevice."""
    lines = [f" gpudevice = '{value}' , network_address = 'gpu-1' , type = 'default' \n" for value in values]
    other = " gpudevice = '2' , network_address = 'gpu-2' , type = 'default' \n"
    (tree.runtime / f"{job_id}_resources").write_text("".join([*lines, other]))


def test_the_gpus_of_a_job_are_told_with_it(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAKTUK_HOSTNAME", "gpu-1")
    for number, busy in enumerate((10, 30, 50)):
        amd_gpu(tmp_path, 128 + number, number, busy, 1 << (20 + number))
    write_gpus(tree, 7, "0", "1", "1")
    write_gpus(tree, 8, "")
    watch = tree.watch(amd_drivers(tmp_path))
    for _ in range(2):
        tree.use("alice_7", 1, 1)
        tree.use("alice_8", 1, 1)
        told = tree.sample(watch)
    assert told["jobs"] == [[7, 0, 1, 2, 200, 3 << 20], [8, 0, 1]]


def test_a_job_with_a_gpu_that_is_not_read_has_no_use_of_gpus(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAKTUK_HOSTNAME", "gpu-1")
    amd_gpu(tmp_path, 128, 0, 0, 1)
    amd_gpu(tmp_path, 129, 1, "", 1)  # its driver does not answer
    jobs = {7: ("0", "1"), 8: ("0", "5"), 9: ("0,GPU-1f",), 10: ("0",), 11: ("/dev/dri/card0,/dev/dri/renderD128",)}
    for job, values in jobs.items():
        write_gpus(tree, job, *values)
    watch = tree.watch(amd_drivers(tmp_path))
    for _ in range(2):
        for job in jobs:
            tree.use(f"alice_{job:02d}", 1, 1)
        told = tree.sample(watch)
    assert [row[3:] for row in sorted(told["jobs"])] == [[2, None, 2], *[[2, None, None]] * 2, *[[1, 0, 1]] * 2]


def test_without_drivers_the_gpus_of_a_job_are_counted(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAKTUK_HOSTNAME", "gpu-1")
    write_gpus(tree, 7, "0", "1")
    watch = tree.watch()
    for _ in range(2):
        tree.use("alice_7", 1, 1)
        told = tree.sample(watch)
    assert told["jobs"] == [[7, 0, 1, 2, None, None]]


def test_a_card_with_another_number_than_its_render_node_is_not_the_gpu_of_a_neighbour(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first card is the display of the board: the render nodes 128 and 129 belong to the cards 1 and 2."""
    monkeypatch.setenv("TAKTUK_HOSTNAME", "gpu-1")
    amd_gpu(tmp_path, 128, 1, 10, 1)
    amd_gpu(tmp_path, 129, 2, 70, 2)
    jobs = {1: "0", 2: "1", 3: "/dev/dri/renderD129", 4: "/dev/dri/card1", 5: "/dev/dri/card0,/dev/dri/renderD128"}
    for job, value in jobs.items():
        write_gpus(tree, job, value)
    watch = tree.watch(amd_drivers(tmp_path))
    for _ in range(2):
        for job in jobs:
            tree.use(f"alice_{job}", 1, 1)
        told = tree.sample(watch)
    low, high = [1, 100, 1], [1, 700, 2]
    assert [row[3:] for row in sorted(told["jobs"])] == [low, high, high, low, low]


WORDS = st.sampled_from(["0", "1", "17", "/dev/nvidia0", "/dev/dri/card1", "/dev/dri/renderD129", "GPU-1f", "MIG-2"])


@given(st.lists(st.lists(WORDS, min_size=1, max_size=3).map(",".join), max_size=6))
def test_server_and_node_count_the_same_gpus(values: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAKTUK_HOSTNAME", "gpu-1")
        tree = Tree(Path(directory))
        write_gpus(tree, 7, *values)
        assert len(node_gpus.gpus_of(node_base.JobFiles(str(tree.runtime), 7))) == count_gpus(values)


@pytest.mark.parametrize("action", ["watch", "other"])
def test_without_control_groups_it_ends_and_says_so(action: str, capfd: pytest.CaptureFixture[str]) -> None:
    data = {"oar_tmp_directory": "/var/lib/oar", "period": 30, "cpuset_path": None, "options": {}}
    code = node_curves.main(action, data)
    assert code != 0
    assert "[node_curves]" in capfd.readouterr().err


def test_it_ends_with_its_input(tree: Tree) -> None:
    script = f"""
import sys; sys.path.insert(0, {str(TOOLS)!r}); sys.dont_write_bytecode = True
import node_cgroups, node_curves, node_gpus
groups = node_cgroups.GroupsV2({str(tree.mount)!r}, "/oar")
node_curves.watch(node_curves.Watch(groups, "/", node_gpus.Drivers("none", "/none*")), 3600)
"""
    running = subprocess.Popen([sys.executable, "-I", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, _ = running.communicate(b"", timeout=60)
    assert (running.returncode, out) == (0, b"")


def test_a_sample_of_64_jobs_opens_two_files_for_each(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a point is bounded by what is opened: the directory of the groups, and two files for each job."""
    watch = tree.watch()
    for number in range(64):
        tree.use(f"alice_{number + 1}", 1, 1)
    tree.sample(watch)
    opened: list[str] = []
    real = os.open

    def note(path: str, *rest: int) -> int:
        opened.append(path)
        return real(path, *rest)

    monkeypatch.setattr(os, "open", note)
    told = tree.sample(watch)
    assert len(told["jobs"]) == 64
    assert len(opened) == 2 * 64
    assert len(json.dumps(told, separators=(",", ":"))) < 64 * 40

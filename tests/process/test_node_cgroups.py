"""Control groups: where they are found, and version 2 of them, on whatever tree of version 2 this machine has."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oar.lib.remote.bootstrap import TOOLS
from tests.process.node_box import NodeBox

HEAD = f"import json, os, sys, time; sys.path.insert(0, {str(TOOLS)!r}); sys.dont_write_bytecode = True\n"
HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
32 31 0:29 /docker/x /mnt/other rw - cgroup cgroup rw,cpu,cpuacct
33 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
37 31 0:34 / /sys/fs/cgroup/with\\040blank rw - cgroup cgroup rw,freezer
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
UNIFIED = "31 23 0:28 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


def run(script: str) -> Any:
    """Run a script on the node programs' modules in a process of its own; what it wrote as JSON."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", HEAD + script], check=True, capture_output=True, text=True, timeout=60
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("mountinfo", "manager"), [(HYBRID, "cgroup1"), (UNIFIED, "cgroup2"), ("", "none"), ("broken line\n", "none")]
)
def test_the_manager_is_chosen_by_what_is_mounted(mountinfo: str, manager: str) -> None:
    script = "import node_cgroups as c; print(json.dumps(c.choose_manager('auto', c.Mounts({!r}))))"
    assert run(script.format(mountinfo)) == manager


def test_the_whole_mount_of_a_hierarchy_is_taken_and_blanks_are_read() -> None:
    script = "import node_cgroups as c; m = c.Mounts({!r}); print(json.dumps([m.v2, m.v1]))"
    two, one = run(script.format(HYBRID))
    assert two == "/sys/fs/cgroup/unified"
    assert one["cpuacct"] == "/sys/fs/cgroup/cpu,cpuacct"
    assert one["freezer"] == "/sys/fs/cgroup/with blank"


def test_the_mounts_are_read_once_until_others_are_at_their_places(tmp_path: Path) -> None:
    """A worker asks for the mounts for each of its jobs."""
    script = f"""
import node_cgroups as c, node_base
read = []
place = {str(tmp_path / "cgroup")!r}
def content_of(path):
    read.append(path)
    return ("31 23 0:28 / %s rw - cgroup2 cgroup2 rw" % place).encode()
node_base.content_of = content_of
counts = []
for step in ("none", "same", "mounted", "same", "other"):
    if step == "mounted":
        os.mkdir(place)
    if step == "other":
        os.mkdir(place + "-new")
        os.rename(place + "-new", place)
    c.Mounts.here()
    counts.append(len(read))
print(json.dumps(counts))
"""
    assert run(script) == [1, 2, 3, 3, 4]


@pytest.mark.parametrize(("wanted", "mountinfo"), [("cgroup2", ""), ("cgroup1", UNIFIED), ("systemd", UNIFIED)])
def test_a_manager_that_is_not_there_is_error_4(wanted: str, mountinfo: str) -> None:
    script = f"""
import node_cgroups as c, node_base
try:
    c.choose_manager({wanted!r}, c.Mounts({mountinfo!r}))
except node_base.NodeError as error:
    print(json.dumps(error.code))
"""
    assert run(script) == 4


@pytest.mark.parametrize(
    ("values", "cpus"),
    [(["3"], [3]), (["1,17"], [1, 17]), (["1+4+8", 2], [1, 2, 4, 8]), (["0-3 9"], [0, 1, 2, 3, 9]), ([None, ""], [])],
)
def test_every_form_of_the_cpuset_property_is_read(values: list[Any], cpus: list[int]) -> None:
    assert run(f"import node_kernel; print(json.dumps(sorted(node_kernel.parse_cpus({values!r}))))") == cpus


@pytest.fixture
def unified(box: NodeBox) -> str:
    """A tree of version 2 of this machine, and a directory of ours below it."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            return f"g = c.GroupsV2({line.split()[4]!r}, {box.cpuset_path!r}); g.prepare()"
    pytest.skip("no control groups of version 2 are mounted here")


VERSION_TWO = """
import node_base, node_cgroups as c, node_devices, node_kernel
{groups}
leaves = c.Leaves("alice_1", "alice", 1)
job = c.Confinement(g, "alice_1", "alice", 1)
g.create(leaves, None, None, None)
def start(part, body):
    pid = os.fork()
    if pid == 0:
        g.join(leaves, part)
        body()
        os._exit(0)
    return pid
def forever():
    if os.fork() == 0:
        os.setsid()
    time.sleep(1000)
def gone(pid):
    os.waitpid(pid, 0)
    return True
"""


def version_two(unified: str, script: str) -> Any:
    end = '\nleft = job.kill()\ng.remove("alice_1")\nos.rmdir(g.base)\n'
    return run(VERSION_TWO.format(groups=unified) + script + end)


def test_version_2_freezes_and_kills_the_payload_alone(unified: str) -> None:
    script = """
oarexec, user = start("oarexec", forever), start("payload", forever)
node_kernel.waited(lambda: len(job.payload()) == 2, 10)
said = [job.freeze(True), job.is_frozen(), job.freeze(False), job.is_frozen(), job.kill_payload(), job.payload()]
said.append(len(c.pids_in(g.tracker(leaves.oarexec))))
said += [job.kill(), gone(oarexec), gone(user), c.pids_in(g.tracker("alice_1")), job.usage()["cpu_us"] > 0]
print(json.dumps(said))
"""
    assert version_two(unified, script) == [True, True, True, False, [], [], 2, [], True, True, [], True]


def test_version_2_kills_a_frozen_payload_and_sessions_below_it(unified: str) -> None:
    script = """
user = start("payload", forever)
node_kernel.waited(lambda: len(job.payload()) == 2, 10)
leaf = job.enter_session(77)
job.move(leaf, user)
said = [c.pids_in(g.tracker(leaf)) == [user], len(job.payload()), job.freeze(True), job.kill(), gone(user)]
print(json.dumps(said))
"""
    assert version_two(unified, script) == [True, 2, True, [], True]


def test_version_2_says_when_there_is_no_controller_for_a_limit(unified: str) -> None:
    script = """
try:
    g.create(leaves, None, None, 1 << 30)
except node_base.NodeError as error:
    print(json.dumps([error.code, str(error).split(" but ")[0]]))
"""
    assert version_two(unified, script) == [4, "JRM_MEMORY is set"]


def test_version_2_refuses_the_devices_of_others(unified: str) -> None:
    script = """
def look():
    for path in ("/dev/null", "/dev/zero"):
        try:
            os.close(os.open(path, os.O_RDWR))
            os.write(write, b"yes ")
        except OSError:
            os.write(write, b"no ")
read, write = os.pipe()
refused = node_devices.refused_numbers({"/dev/nvidia0": (1, 3), "/dev/nvidia1": (1, 5)}, ["1"])
node_devices.attach(g.tracker(leaves.payload), node_devices.device_program(refused))
pid = start("payload", look)
gone(pid)
print(json.dumps([refused, os.read(read, 100).decode()]))
"""
    assert version_two(unified, script) == [[[1, 3]], "no yes "]


@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        (["0"], [[195, 1], [226, 1], [226, 129], [240, 1]]),
        (["0", "1"], [[240, 1]]),
        (["/dev/dri/renderD129+1"], [[195, 0], [226, 0], [226, 128], [240, 1]]),
    ],
)
def test_a_job_keeps_the_gpus_that_its_property_names(allowed: list[str], refused: list[list[int]]) -> None:
    script = """
import node_devices
devices = {"/dev/nvidia0": (195, 0), "/dev/nvidia1": (195, 1), "/dev/dri/card0": (226, 0), "/dev/dri/card1": (226, 1),
           "/dev/dri/renderD128": (226, 128), "/dev/dri/renderD129": (226, 129),
           "/dev/nvidia-caps/nvidia-cap1": (240, 1)}
"""
    assert run(f"{script}print(json.dumps(node_devices.refused_numbers(devices, {allowed!r})))") == refused


def test_what_a_job_used_is_read_from_version_2(tmp_path: Path) -> None:
    payload = tmp_path / "oar/alice_1/payload"
    payload.mkdir(parents=True)
    files = {
        "../cpu.stat": "usage_usec 1500000\nuser_usec 1000000\n",
        "memory.peak": "4096\n",
        "memory.max": "max\n",
        "memory.events": "low 0\noom 2\noom_kill 3\noom_group_kill 0\n",
        "pids.events": "max 9\n",
    }
    for name, text in files.items():
        (payload / name).write_text(text)
    used = f"print(json.dumps(c.GroupsV2({str(tmp_path)!r}, '/oar').usage(c.Leaves('alice_1', 'alice', 1))))"
    whole = {"cpu_us": 1500000, "memory_peak": 4096, "memory_limit": None, "oom_kills": 3, "forks_denied": 9}
    assert run(f"import node_cgroups as c\n{used}") == whole
    for name in files:
        (payload / name).unlink()
    assert run(f"import node_cgroups as c\n{used}") == dict.fromkeys(whole)  # an older kernel tells less


def test_in_version_1_a_session_is_killed_by_itself_and_counts_in_its_job(box: NodeBox) -> None:
    script = f"""
import node_cgroups as c, node_kernel
g = c.groups_of({{"cpuset_path": {box.cpuset_path!r}, "options": {{"cgroup_manager": "cgroup1"}}}})
g.prepare()
job = c.Confinement(g, "alice_1", "alice", 1)
g.create(job.leaves, {{0}}, set(), None, 50)
pid = os.fork()
if pid == 0:
    time.sleep(1000)
job.join("payload", pid)
job.move(job.enter_session(77), pid)
groups = [line.split(":")[1:] for line in open("/proc/%d/cgroup" % pid).read().splitlines()]
where = {{name: path.rpartition("alice_1")[2] for name, path in groups if "alice_1" in path}}
limit = node_kernel.number(g.directory("pids", job.leaves.payload) + "/pids.max")
left = job.kill()
os.waitpid(pid, 0)
g.remove("alice_1")
print(json.dumps([where, limit, left]))
"""
    where, limit, left = run(script)
    assert (where["freezer"], where["devices"]) == ("/payload/s77", "/payload/s77")
    assert (where["memory"], where["pids"]) == ("/payload", "/payload")
    assert (limit, left) == (50, [])

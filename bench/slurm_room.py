"""A test cluster with Debian's Slurm in place of OAR: one slurmd on each node, as on a real cluster.

The programs come from the packages of this machine; files, sockets and processes belong to the test cluster and end
with it.
"""

import shlex
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from bench.cluster import tool

_PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "munged")
PACKAGES = "slurmctld slurmd slurm-client munge"
_PATH = "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
_NODES_DEADLINE = 60.0

#: Required settings; all others are defaults.  SlurmUser is root: another account would change no figure.  The state of
#: the controller is on the disk of the machine, like the files of PostgreSQL in a test cluster with OAR.
_NEEDED = {
    "ClusterName": "bench",
    "SlurmctldHost": "server",
    "SlurmUser": "root",
    "StateSaveLocation": "/run/room/disk/slurm",
    "SlurmctldPidFile": "/run/slurmctld.pid",
    "SlurmdPidFile": "/run/slurmd.pid",
    "SlurmdSpoolDir": "/run/slurmd",
    "SlurmctldLogFile": "/var/log/slurmctld.log",
    "SlurmdLogFile": "/var/log/slurmd.log",
    "SlurmdParameters": "config_overrides",
    "MpiDefault": "none",
    "ReturnToService": "2",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core",
    "MaxArraySize": "20001",
    "MaxJobCount": "50000",
}
#: Settings of a site with many short jobs: no accounting, logging or confinement; a scheduling pass after each change,
#: without backfilling; ended jobs are purged immediately.
_TUNED = {
    "SchedulerType": "sched/builtin",
    "SchedulerParameters": "batch_sched_delay=0,sched_interval=1,default_queue_depth=10000,max_rpc_cnt=0",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "JobAcctGatherType": "jobacct_gather/none",
    "AccountingStorageType": "accounting_storage/none",
    "JobCompType": "jobcomp/none",
    "PropagateResourceLimits": "NONE",
    "MinJobAge": "2",
    "CompleteWait": "0",
    "SlurmctldDebug": "error",
    "SlurmdDebug": "error",
}
#: The same, with each job confined to its cores and to the memory of its node by control groups, as with OAR.
_CONFINED = {**_TUNED, "ProctrackType": "proctrack/cgroup", "TaskPlugin": "task/cgroup"}
FLAVOURS: Mapping[str, Mapping[str, str]] = {"tuned": _TUNED, "confined": _CONFINED, "default": {}}

_CGROUP_CONF = "ConstrainCores=yes\nConstrainRAMSpace=yes\n"
_MUNGED = (
    "mkdir -p /run/munge && munged --key-file=/etc/slurm/munge.key --log-file=/run/munge/log"
    " --pid-file=/run/munge/pid --seed-file=/run/munge/seed"
)


def missing() -> str:
    """Return how to install Slurm; empty if it is installed."""
    if all(shutil.which(program, path=_PATH) for program in _PROGRAMS):
        return ""
    return (
        f"Slurm is not on this computer: apt-get install --no-install-recommends {PACKAGES}"
        " (Debian 12; its services need not run, the room starts its own)"
    )


def configuration(flavour: str, nodes: int, cores: int) -> str:
    """Return the text of slurm.conf."""
    settings = {**_NEEDED, **FLAVOURS[flavour]}
    lines = [f"{key}={value}" for key, value in settings.items()]
    lines.append(f"NodeName=node-[1-{nodes}] CPUs={cores} RealMemory=1000 State=UNKNOWN")
    lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"


def start(room: str, lease: int, flavour: str, nodes: int, cores: int) -> None:
    """Start a test cluster with Slurm; return when all nodes are idle."""
    size = ("--nodes", str(nodes), "--cores", str(cores))
    tool(room, "start", "--until", "nodes", "--while", str(lease), *size)
    tool(room, "run", "root", _controller(configuration(flavour, nodes, cores)))
    with ThreadPoolExecutor(4) as hands:
        list(hands.map(lambda number: _start_node(room, number), range(1, nodes + 1)))
    deadline = time.monotonic() + _NODES_DEADLINE
    while set(tool(room, "run", "root", "sinfo --noheader --Node --format=%T").split()) != {"idle"}:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nodes of Slurm are not up: {tool(room, 'run', 'root', 'sinfo --list-reasons')}")
        time.sleep(0.1)


def _controller(slurm_conf: str) -> str:
    """Return shell text that starts the controller; all machines share ``/etc``."""
    return f"""set -e
mkdir -p /etc/slurm /run/room/disk/slurm
printf %s {shlex.quote(slurm_conf)} >/etc/slurm/slurm.conf
printf %s {shlex.quote(_CGROUP_CONF)} >/etc/slurm/cgroup.conf
head -c 1024 /dev/urandom >/etc/slurm/munge.key
chmod 400 /etc/slurm/munge.key
{_MUNGED}
slurmctld </dev/null >/dev/null 2>&1"""


def _start_node(room: str, number: int) -> None:
    tool(room, "run", "--on", f"node-{number}", "root", f"{_MUNGED} && slurmd </dev/null >/dev/null 2>&1")

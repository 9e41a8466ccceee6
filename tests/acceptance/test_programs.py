"""Programs of others that submit, watch and delete jobs by our commands: they do real work on a real cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from installer.target import InstallError

from tests.acceptance.conftest import looked_after
from tests.acceptance.harness import Cluster, wait_until
from tests.acceptance.programs import REQUIREMENTS, Desk
from tests.index_programs import environment
from tests.mpi import MPI_SUM

FINAL = {"Terminated", "Error"}


@pytest.fixture(scope="module")
def small_room(request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, Path]]:
    """Two nodes that see the programs; oarstat's table is the second one, which FluidDyn reads."""
    try:
        venv = environment(REQUIREMENTS)
    except InstallError as error:
        pytest.fail(f"the programs that parse our commands cannot be installed: {error}", pytrace=False)
    settings = ("--set", "OARSTAT_DEFAULT_OUTPUT_FORMAT=2", "--set", "JOB_KILL_GRACE=1")
    name = f"programs-{os.getpid()}"
    cluster = Cluster.start(name, "--nodes", "2", "--cores", "2", "--fast-db", "--show", str(venv), *settings)
    for room in looked_after(request, cluster):
        yield room, venv


@pytest.fixture
def desk(small_room: tuple[Cluster, Path], request: pytest.FixtureRequest) -> Iterator[Desk]:
    """A directory for one test."""
    cluster, venv = small_room
    yield Desk.made(cluster, venv, request.node.name)
    cluster.calm()


def wait_for_end(desk: Desk, condition: str) -> list[str]:
    """Wait until the jobs that satisfy a condition have ended; their states."""
    wait_until(lambda: set(desk.states(condition)) <= FINAL, lambda: desk.states(condition))
    return desk.states(condition)


# -- dask-jobqueue ----------------------------------------------------------------------------------------------------


def test_dask_computes_on_workers_that_are_jobs_and_deletes_them(desk: Desk) -> None:
    desk.put("dask_squares.py")
    assert desk.run("python3 dask_squares.py") == "285\n"
    assert desk.hosts("project = 'dask'") <= {"node-1", "node-2"} != set()
    workers = "job_name = 'dask-worker' AND project = 'dask'"
    wait_for_end(desk, workers)  # a worker may end by itself before it is killed, since its scheduler ends, too
    asked = f"SELECT 1 FROM event_logs JOIN jobs USING (job_id) WHERE type = 'FRAG_JOB_REQUEST' AND {workers}"
    assert len(desk.cluster.sql(asked)) == len(desk.states(workers)) == 2


# -- submitit ---------------------------------------------------------------------------------------------------------

CANCEL = """
import time, submitit
executor = submitit.AutoExecutor(folder="logs", cluster="oar")
executor.update_parameters(timeout_min=30, name="sleeper")
job = executor.submit(time.sleep, 1000)
while job.watcher.get_state(job.job_id, mode="force") != "RUNNING":
    time.sleep(0.1)
job.cancel()
while not job.done(force_check=True):
    time.sleep(0.1)
print(job.state)
"""


def test_submitit_runs_functions_as_jobs_and_as_an_array_and_cancels_them(desk: Desk) -> None:
    desk.put("submitit_squares.py")
    assert desk.run("python3 submitit_squares.py") == "49\n[1, 4, 9]\n"
    assert wait_for_end(desk, "project = 'submitit' AND job_name = 'squares'") == ["Terminated"] * 4
    sizes = desk.cluster.sql("SELECT count(*) FROM jobs WHERE project = 'submitit' GROUP BY array_id ORDER BY 1")
    assert sizes == [["1"], ["3"]]
    desk.put("cancel.py", CANCEL)
    assert desk.run("python3 cancel.py").splitlines()[-1] == "FAILED"
    assert wait_for_end(desk, "job_name = 'sleeper'") == ["Error"]


# -- Snakemake --------------------------------------------------------------------------------------------------------

SNAKEFILE = """
rule total:
    input: expand("squares/{n}", n=[3, 4])
    output: "total"
    shell: "cat {input} | paste -s -d + | xargs -I X sh -c 'echo $((X))' > {output}"

rule square:
    output: "squares/{n}"
    shell: "echo $(({wildcards.n} * {wildcards.n})) > {output}"

rule wrong:
    output: "nothing"
    shell: "exit 3"

rule long:
    output: "late"
    shell: "sleep 1000"
"""
#: Runs Snakemake and interrupts it, as ^C does, between two looks at its job: during one it would forget to delete it.
#: It looks every ten seconds: for one of these it has had no child when it is interrupted.
INTERRUPT = """
import glob, os, signal, subprocess, sys, time
flow = subprocess.Popen(["snakemake", *sys.argv[1:]])

def has_children():
    return any(open(path).read().strip() for path in glob.glob(f"/proc/{flow.pid}/task/*/children"))

since = time.monotonic()
while flow.poll() is None and time.monotonic() < since + 1:
    try:
        if not os.path.exists("looked") or has_children():
            since = time.monotonic()
    except OSError:  # a thread has ended
        since = time.monotonic()
    time.sleep(0.1)
flow.send_signal(signal.SIGINT)
sys.exit(flow.wait())
"""
LOOKED = """#!/bin/sh
profile/status "$1" && if oarstat -s -j "$1" | grep -q Running; then touch looked; fi
"""
SNAKEMAKE = "--profile profile --seconds-between-status-checks 1 --nolock"


@pytest.fixture
def flow(desk: Desk) -> Desk:
    """A directory with a workflow and the profile of the user guide."""
    for name in ("profile/config.yaml", "profile/status"):
        desk.put(name)
    desk.put("Snakefile", SNAKEFILE)
    return desk


def test_snakemake_runs_each_rule_as_a_job_and_knows_which_failed(flow: Desk) -> None:
    ran = flow.attempt(f"snakemake {SNAKEMAKE} --keep-going total nothing 2>&1")
    assert flow.run("cat total") == "25\n", ran
    assert ran.code != 0
    assert "Error in rule wrong" in ran.out
    assert "Error in rule square" not in ran.out
    assert flow.states("job_name IN ('square', 'total', 'wrong')") == ["Terminated"] * 4


def test_snakemake_deletes_its_jobs_when_it_is_interrupted(flow: Desk) -> None:
    flow.put("interrupt.py", INTERRUPT)
    flow.put("look", LOOKED)
    flow.run("sed -i 's,status-cmd: profile/status,status-cmd: ./look,' profile/config.yaml")
    ran = flow.attempt("python3 interrupt.py --profile profile late 2>&1")
    assert ran.code != 0
    assert wait_for_end(flow, "job_name = 'long'") == ["Error"], ran


# -- ReFrame ----------------------------------------------------------------------------------------------------------

CHECKS = """
import reframe as rfm
import reframe.utility.sanity as sn


class Run(rfm.RunOnlyRegressionTest):
    valid_systems = ["demo:node"]
    valid_prog_environs = ["builtin"]
    time_limit = "5m"


@rfm.simple_test
class SquareTest(Run):
    executable = "echo $((7 * 7)) on $(hostname)"

    @sanity_function
    def right(self):
        return sn.assert_found(r"^49 on node-", self.stdout)


@rfm.simple_test
class WrongTest(Run):
    executable = "exit 3"

    @sanity_function
    def right(self):
        return sn.assert_eq(self.job.exitcode, 3 << 8)


@rfm.simple_test
class ImpatientTest(Run):
    executable = "echo"
    max_pending_time = "1s"

    @sanity_function
    def right(self):
        return True
"""
REFRAME = "reframe --nocolor -C reframe_site.py -c checks.py --prefix here"


def test_reframe_checks_the_cluster_by_jobs(desk: Desk) -> None:
    desk.put("reframe_site.py")
    desk.put("checks.py", CHECKS)
    said = desk.run(f"{REFRAME} -n SquareTest -n WrongTest -r 2>&1")
    assert "Ran 2/2 test case(s) from 2 check(s) (0 failure(s)" in said
    assert desk.states("job_name IN ('rfm_SquareTest', 'rfm_WrongTest')") == ["Terminated", "Terminated"]


def test_reframe_deletes_a_job_that_waits_too_long(desk: Desk) -> None:
    desk.put("reframe_site.py")
    desk.put("checks.py", CHECKS)
    everything = desk.person.submit("-l nodes=2,walltime=0:10 'sleep 1000'")
    desk.cluster.wait_for_state(everything, "Running")
    said = desk.attempt(f"{REFRAME} -n ImpatientTest -r 2>&1")
    assert "maximum pending time exceeded" in said.out, said
    assert wait_for_end(desk, "job_name = 'rfm_ImpatientTest'") == ["Error"]


# -- execo, FluidDyn, nipype ------------------------------------------------------------------------------------------

EXECO = """
import execo_g5k.oar as oar

wish = oar.OarSubmission(resources="nodes=2", walltime=600, name="execo", job_type="besteffort", command="sleep 1000")
((job, _),) = oar.oarsub([(wish, None)])
print(oar.wait_oar_job_start(job, None), oar.get_oar_job_info(job, None)["state"])
print(sorted(host.address for host in oar.get_oar_job_nodes(job, None)))
print((job, None) in oar.get_current_oar_jobs([None]))
oar.oardel([(job, None)])
"""


def test_execo_gets_nodes_and_gives_them_back(desk: Desk) -> None:
    desk.put("execo_job.py", EXECO)
    assert desk.run("python3 execo_job.py").splitlines() == ["True Running", "['node-1', 'node-2']", "True"]
    assert wait_for_end(desk, "job_name = 'execo'") == ["Error"]


FLUIDDYN = """
from fluiddyn.clusters.oar import ClusterOAR, count_number_jobs, get_job_id, get_job_info

cluster = ClusterOAR()
cluster.get_commands_setting_env = lambda: ["export ANSWER=42"]
options = dict(nb_nodes=1, nb_cores_per_node=2, walltime="0:10:00", ask=False, project="fluid")
cluster.submit_command("sh -c 'echo $ANSWER; sleep 1000'", name_run="fluid_run", **options)
while (get_job_info("fluid_run") or {}).get("status") != "running":
    pass
info = get_job_info("fluid_run")
print(info["nb_procs"], info["walltime"], info["user"], count_number_jobs("fluid_run"))
print(get_job_id("fluid_run"))
"""


def test_fluiddyn_submits_a_launcher_and_reads_the_table(desk: Desk) -> None:
    desk.put("launch.py", FLUIDDYN)
    said = desk.run("python3 launch.py").splitlines()
    assert said[-2] == "2 0:10:0 alice 1"
    job = int(said[-1])
    wait_until(lambda: "42" in desk.run(f"cat OAR.fluid_run.{job}.stdout"))
    assert desk.run(f"oardel {job} >/dev/null; oarstat -f -j {job} | grep -c 'project = fluid'") == "1\n"


NIPYPE = """
from nipype import Node, Workflow
from nipype.interfaces.utility import Function


def square(x):
    return x * x


first, second = (Node(Function(["x"], ["y"], square), name=name) for name in ("first", "second"))
first.inputs.x = 3
flow = Workflow("flow", base_dir=".")
flow.connect(first, "y", second, "x")
flow.config["execution"] = {"poll_sleep_duration": 0.2}
done = flow.run("OAR", plugin_args={"oarsub_args": "--project nipype -l core=1,walltime=0:10"})
print([node.result.outputs.y for node in done.nodes])
"""


def test_nipype_runs_a_workflow_whose_nodes_are_jobs(desk: Desk) -> None:
    desk.put("flow.py", NIPYPE)
    assert desk.run("python3 flow.py").splitlines()[-1] == "[9, 81]"
    assert desk.states("project = 'nipype'") == ["Terminated", "Terminated"]


# -- programs inside a job --------------------------------------------------------------------------------------------

#: mpirun starts its daemons by such calls of its agent: a host, then one text for the shell.
MPIRUN = """for host in $(uniq $OAR_NODEFILE); do
    oarsh -x $host 'PATH=/usr/bin:$PATH ; export PATH ; hostname'
done"""


def test_tools_reach_the_nodes_of_their_job_by_its_node_file(desk: Desk) -> None:
    clush = f"{desk.venv}/bin/python3 -m ClusterShell.CLI.Clush -L -N -o -q -O ssh_path=oarsh"
    desk.put("job", f"#!/bin/sh\n{clush} -w $(uniq $OAR_NODEFILE | paste -s -d ,) hostname\n{MPIRUN}\n")
    job = desk.person.submit(f"-d /home/alice/{desk.name} -O out -E err -l nodes=2,walltime=0:10 ./job")
    wait_for_end(desk, f"job_id = {job}")
    assert re.findall("node-.", desk.run("cat out")) == ["node-1", "node-2"] * 2, desk.run("cat err")


#: What Hydra tells each process that it starts. They do not talk: the sum of MPICH (over UCX) hung in 4 of 60 runs
#: between nodes that share one kernel, as those of a room do, on a machine that had more to do.
HYDRA_RANK = """#!/usr/bin/python3
import os, socket

print(socket.gethostname(), os.environ["PMI_RANK"], os.environ["PMI_SIZE"], flush=True)
"""


@pytest.mark.parametrize(("mpirun", "program", "third"), [("openmpi", MPI_SUM, "6"), ("mpich", HYDRA_RANK, "4")])
def test_mpirun_reaches_both_nodes_of_its_job_without_an_option(
    desk: Desk, mpirun: str, program: str, third: str
) -> None:
    desk.put("program", program)
    place = f"/home/alice/{desk.name}"
    command = f"'mpirun.{mpirun} {place}/program'"
    job = desk.person.submit(f"-d {place} -O out -E err -l nodes=2,walltime=0:10 {command}")
    assert wait_for_end(desk, f"job_id = {job}") == ["Terminated"], desk.run("cat out err")
    told = sorted(desk.run("cat out").splitlines())
    assert [line.split()[0] for line in told] == ["node-1", "node-1", "node-2", "node-2"], desk.run("cat out err")
    assert sorted(line.split()[1] for line in told) == ["0", "1", "2", "3"]
    assert {line.split()[2] for line in told} == {third}

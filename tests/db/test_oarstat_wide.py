"""What readers at a wide terminal see of jobs; names by script; output files of arrays by index."""

from types import SimpleNamespace

import pytest

from oar.cli import oarnodes, oarstat
from oar.cli.oarstat_parts import wide_table
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.privacy import Privacy
from oar.lib.jobs.script_names import script_name
from oar.lib.jobs.states import JobState
from tests.builders import add_job, add_resources, execute_sql
from tests.frontend import ALICE, Frontend, LoginNode, add_rules

ADMIN = User("root", 0, administers=True)


def shown(database: Database, width: int = 160, *, colored: bool = False, user: str = "alice") -> list[str]:
    with database.snapshot() as tx:
        jobs = tx.jobs.select(tx.column("SELECT job_id FROM jobs"))
        privacy = Privacy(ALICE._replace(name=user), hides_commands=True)
        return wide_table.wide_table(tx, jobs, privacy, width=width, colored=colored).splitlines()


def test_nodes_times_outcome_and_reason_are_shown(database: Database) -> None:
    resources = add_resources(database, nodes=3)
    running = add_job(database, JobState.RUNNING, on=resources, user="alice", name="sim", walltime=7200)
    held = add_job(database, JobState.HOLD, user="alice")
    ended = add_job(database, JobState.TERMINATED, on=resources[:1], user="bob", name="post")
    execute_sql(database, "UPDATE jobs SET exit_code = 768, start_time = stop_time - 90 WHERE job_id = %s", ended)
    execute_sql(database, "UPDATE job_ends SET code = 'EXIT_STATUS' WHERE job_id = %s", ended)
    execute_sql(database, "UPDATE jobs SET command = '/home/alice/train.sh 3' WHERE job_id = %s", held)
    head, dashes, *lines = shown(database)
    assert head.split()[:8] == ["Job", "id", "Name", "User", "Queue", "S", "Used", "Left"]
    assert head.endswith("Nodes                Outcome, or start and reason")
    assert len(head) >= len(dashes.rstrip("- "))
    by_id = {int(line.split()[0]): line for line in lines}
    assert by_id[running].split()[1:5] == ["sim", "alice", "default", "R"]
    assert by_id[running].split()[5].startswith("0:00:")
    assert by_id[running].split()[6].startswith(("1:59:", "2:00:"))
    assert by_id[running].split()[7] == "node-[1-3]"
    assert by_id[held].split()[:8] == [str(held), "train.sh", "alice", "default", "H", "-", "-", "-"]
    assert by_id[ended].endswith("failed: exit 3")
    assert by_id[ended].split()[5:8] == ["0:01:30", "-", "node-1"]
    assert "train.sh" not in "".join(shown(database, user="bob"))


def test_lines_fit_the_terminal_and_forge_nothing(database: Database) -> None:
    add_job(database, JobState.WAITING, user="alice", name="a\x1b[0mb" * 10)
    lines = shown(database, 120, colored=True)
    assert all(len(line.replace("\x1b[33mW\x1b[0m", "W")) <= 120 for line in lines)
    assert lines[-1].count("\x1b") == 2


def test_programs_and_numbered_layouts_see_the_usual_table(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    add_job(database, user="alice", name="sim")
    frontend = Frontend(database)
    usual = frontend.type(oarstat.main).out
    assert usual.startswith("Job id     Name           User           Submission Date     S Queue\n")
    monkeypatch.setattr(wide_table, "terminal_width", lambda: 140)
    assert frontend.type(oarstat.main).out == usual  # a pipe
    monkeypatch.setattr("oar.cli.oarstat.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    assert frontend.type(oarstat.main).out.split("\n")[0].endswith("Outcome, or start and reason")
    assert frontend.type(oarstat.main, "--format", 1).out == usual
    assert frontend.type(oarstat.main, environment={"OAR_OARSTAT_OUTPUT_FORMAT": "1"}).out == usual
    monkeypatch.setattr(wide_table, "terminal_width", lambda: 119)
    assert frontend.type(oarstat.main).out == usual


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("./sim.sh 3", "sim.sh"),
        ("A=1 B=2 /opt/x/run", "run"),
        ("bash -c 'sleep 3; ./x'", "bash"),
        ("python3 -u ./train.py --lr 3", "train.py"),
        ("sh", "sh"),
        ("echo 'unfinished", "echo"),
        ("", ""),
        ("'a\nb'", ""),
        ("x" * 200, "x" * 100),
    ],
)
def test_the_name_of_a_script_is_found(command: str, name: str) -> None:
    assert script_name(command) == name


@pytest.fixture
def site(database: Database) -> LoginNode:
    add_resources(database)
    add_rules(database)
    return LoginNode(database)


def test_jobs_get_the_names_of_their_scripts_where_the_site_says_so(site: LoginNode) -> None:
    assert site.submit("/bin/sim 3").name is None
    site.config = Config(job_name_by_script=True)
    job = site.submit("/bin/sim 3")
    assert (job.name, job.stdout_file) == ("sim", "OAR.%jobid%.stdout")
    named = site.submit("-n", "own", "/bin/sim 3")
    assert (named.name, named.stdout_file) == ("own", "OAR.own.%jobid%.stdout")


def test_jobs_of_arrays_write_files_by_index_where_the_site_says_so(site: LoginNode) -> None:
    site.config = Config(array_output_by_index=True)
    assert site.oarsub("--array", 2, "-n", "part", "/bin/sim").exit == 0
    files = {(job.stdout_file, job.stderr_file) for job in site.jobs()}
    assert files == {("OAR.part.%arrayid%_%arrayindex%.stdout", "OAR.part.%arrayid%_%arrayindex%.stderr")}
    assert site.submit("/bin/sim").stdout_file == "OAR.%jobid%.stdout"
    assert site.submit("-O", "mine", "/bin/sim").stdout_file == "mine"


def test_events_are_sentences_at_a_terminal(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    job = add_job(database, JobState.TERMINATED, on=add_resources(database)[:1], user="alice")
    with database.begin() as tx:
        tx.events.add("FRAG_JOB_REQUEST", job, f"User anna requested to frag the job {job}")
        tx.events.add("SWITCH_INTO_TERMINATE_STATE", job, f"[bipbip {job}] Ask to change the job state")
        tx.events.add("PING_CHECKER_NODE_SUSPECTED", 0, "does not answer", hosts=["node-1", "node-2"])
        tx.execute("UPDATE jobs SET exit_code = 0 WHERE job_id = %s", (job,))
    frontend = Frontend(database)
    assert f"> [{job}] FRAG_JOB_REQUEST: User anna" in frontend.type(oarstat.main, "-e", job).out
    assert "> FRAG_JOB_REQUEST: User anna" in frontend.type(oarstat.main, "-f", job).out
    assert "|node-1|0| PING_CHECKER_NODE_SUSPECTED: does" in frontend.type(oarnodes.main, "-e").out
    terminal = SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("oar.cli.oarstat_parts.details.sys", terminal)
    monkeypatch.setattr("oar.cli.oarnodes.sys", terminal)
    for option in ("-e", "-f"):
        told = frontend.type(oarstat.main, option, job).out
        assert f"  anna requested the end of job {job}\n" in told
        assert f"  Job {job} ended: exit code 0\n" in told
        assert "FRAG_JOB_REQUEST" not in told
        assert "[FRAG_JOB_REQUEST]" in frontend.type(oarstat.main, option, job, user=ADMIN).out
    assert frontend.type(oarnodes.main, "-e").out.endswith(
        "  No answer from nodes node-1, node-2: no jobs start there\n"
    )
    assert "FRAG_JOB_REQUEST" in frontend.type(oarstat.main, "-e", job, "-J").out

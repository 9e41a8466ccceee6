"""What oarsub says of a submission that it takes, and what short forms stand for."""

import json
import time
from pathlib import Path

import pytest

from oar.lib.base.times import format_date
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.builders import add_job, add_resources, execute_sql
from tests.frontend import LoginNode, add_rules

NO_MAIL = "# Warning: no mail server is configured (MAIL_SMTP_SERVER, MAIL_SENDER): no mail is sent (--notify mail).\n"


@pytest.fixture
def site(database: Database) -> LoginNode:
    """Four nodes of two cores, on which nobody has worked yet, with the default admission rules."""
    add_resources(database, nodes=4, cores=2)
    add_rules(database)
    return LoginNode(database)


@pytest.mark.parametrize(
    ("types", "said"),
    [
        ("postpone=2020-01-01", "the date of the type postpone=2020-01-01 is in the past: it has no effect."),
        ("expire=2020-01-01", "the date of the type expire=2020-01-01 is in the past: the job will go to Error."),
        (
            "deadline=2020-01-01 10:00",
            "the job cannot end before the date of the type deadline=2020-01-01 10:00: it will go to Error.",
        ),
        ("ar=hard", "the type ar=hard is for reservations (-r): it has no effect."),
        ("container_users=bob", "the type container_users is for containers (-t container): it has no effect."),
        ("timesharing|container", "the type timesharing has no effect together with container."),
        ("noop", "a noop job runs nothing: its command is ignored."),
        ("timesharing|placeholder=x", "the type timesharing has no effect together with placeholder."),
    ],
)
def test_types_that_do_not_do_what_one_thinks(site: LoginNode, types: str, said: str) -> None:
    words = [word for each in types.split("|") for word in ("-t", each)]
    result = site.oarsub(*words, "true")
    assert (result.exit, result.err) == (0, f"# Warning: {said}\n")
    assert site.oarsub("--estimate", *words, "true").err == f"# Warning: {said}\n"


def test_a_deadline_leaves_room_for_the_walltime(site: LoginNode) -> None:
    soon = f"deadline={format_date(int(time.time()) + 1800)}"
    assert site.oarsub("-t", soon, "-l", "walltime=1", "true").err.startswith("# Warning: the job cannot end before")
    assert site.oarsub("-t", soon, "-l", "walltime=0:10", "true").err == ""


def test_types_in_their_place_are_not_talked_about(site: LoginNode) -> None:
    words = ["-t", "container", "-t", "container_users=bob", "-t", "postpone=2035-01-01", "-t", "expire=2035-01-02"]
    assert site.oarsub(*words, "true").err == ""


def test_two_jobs_in_one_dependency_are_a_job_and_seconds(site: LoginNode) -> None:
    first, second = add_job(site.database), add_job(site.database)
    foreign = add_job(site.database, user="bob")
    said = f"-a {first},{second} means {second} seconds after the start of job {first};"
    assert site.oarsub("-a", f"{first},{second}", "true").err == (
        f"# Warning: {said} for both jobs write -a {first} -a {second}.\n"
    )
    for plain in (f"{first},{foreign}", f"{first},{second},7000", f"{first},+{second}", f"{first},86400", str(first)):
        assert site.oarsub("-a", plain, "true").err == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-n", "4"], "-n gives the job the name 4. To request 4 cores, write -l core=4."),
        (["-n", "4", "-l", "nodes=4"], ""),
        (["-n", "a4"], ""),
        (["-d", "afterok:12"], "-d sets the directory of the job to afterok:12. To wait for a job, write -a JOB_ID."),
        (["-d", "after"], "-d after: this directory does not exist here, the job fails where it does not."),
    ],
)
def test_letters_that_mean_something_else_elsewhere(site: LoginNode, words: list[str], said: str) -> None:
    result = site.oarsub(*words, "true")
    assert (result.exit, result.err) == (0, said and f"# Warning: {said}\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "#!/bin/sh\n#OAR -n x\n",
            "the job is submitted without its #OAR lines, which need -S."
            " To use them, delete this job (oardel) and run: oarsub -S '{path} 1 2'",
        ),
        (
            "#!/bin/sh\n  #OAR -n x\n",
            "the job is submitted without its #OAR lines, which need -S."
            " To use them, delete this job (oardel) and run: oarsub -S '{path} 1 2'",
        ),
        (
            "#!/bin/sh\n#SBATCH -n 1\n",
            "the job is submitted without its #SBATCH lines, which are for another scheduler. Write #OAR lines,"
            " delete this job (oardel) and run: oarsub -S '{path} 1 2'",
        ),
        ("#!/bin/sh\necho '#OAR'\n", ""),
        ("#!/bin/sh\n##OAR -n x\n", ""),
        ("\x7fELF\n#SBATCH -n 1\n", ""),
    ],
)
def test_options_in_a_script_without_s_get_one_warning(site: LoginNode, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "job.sh"
    path.write_text(text)
    path.chmod(0o755)
    for command in (f"{path} 1 2", f"bash {path} 1 2", f"'{path}' 1 2"):
        result = site.oarsub(command)
        assert (result.exit, result.err) == (0, said and f"# Warning: {path}: {said.format(path=path)}\n")
    for other in ("true", f"echo {path}"):
        assert site.oarsub(other).err == ""


def test_a_script_that_the_job_cannot_start(site: LoginNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text("#!/bin/sh\n")
    denied = "# Warning: {0}: it is not executable, the job would end with exit code 126. Run: chmod +x ./job.sh\n"
    assert site.oarsub("./job.sh").err == denied.format("./job.sh")
    assert site.oarsub("job.sh").err == (
        "# Warning: job.sh: the shell searches it in PATH, not in the current directory (exit code 127), and it is not"
        " executable. Run: chmod +x ./job.sh. Write: oarsub ./job.sh\n"
    )
    assert site.oarsub("bash job.sh").err == ""
    (tmp_path / "job.sh").chmod(0o755)
    assert site.oarsub("./job.sh").err == ""
    assert site.oarsub("job.sh 1").err == (
        "# Warning: job.sh: the shell searches it in PATH, not in the current directory. Write: oarsub './job.sh 1'\n"
    )
    missing = "# Warning: job.sh: this file does not exist here, the job ends with exit code 127 without it.\n"
    assert site.oarsub("-d", "/", "job.sh").err == missing


def test_the_script_that_is_read_is_the_script_that_runs(
    site: LoginNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#OAR -n x\n")
    (tmp_path / "job.sh").chmod(0o755)
    for command, stored in (("job.sh a", "./job.sh a"), ("'job.sh'", "'./job.sh'"), ("./job.sh", "./job.sh")):
        result = site.oarsub("-S", command)
        assert (result.exit, result.err, site.jobs()[-1].command) == (0, "", stored)
    assert site.oarsub("-d", tmp_path, "-S", "job.sh").err == ""
    assert site.oarsub("-d", "/", "-S", "./job.sh").err == (
        "# Warning: -S reads ./job.sh in the current directory, the job runs it in /."
        " Type the absolute path of the script.\n"
    )


def test_an_option_that_is_given_twice(site: LoginNode) -> None:
    remark = "# Warning: --queue is given several times: the last value is used: default\n"
    result = site.oarsub(
        "-p", "cpuset='0'", "-p", "network_address='node-1' OR true", "-q", "x", "-q", "default", "true"
    )
    assert (result.exit, result.err) == (0, remark)
    assert "(cpuset='0') AND (network_address='node-1' OR true)" in (site.jobs()[-1].properties or "")


def test_an_option_that_a_script_gives_twice(site: LoginNode, tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text(
        "#!/bin/sh\n#OAR -p cpuset='0'\n#OAR -p true\n#OAR --nodelist node-1\n#OAR --nodelist node-2\n"
        "#OAR -n x\n#OAR -n y\n"
    )
    path.chmod(0o755)
    result = site.oarsub("-S", path)
    assert (result.exit, result.err) == (0, "# Warning: --name is given several times: the last value is used: y\n")
    assert "(cpuset='0') AND (true)" in (site.jobs()[-1].properties or "")
    assert "'node-1'" in (site.jobs()[-1].properties or "")


def test_the_old_delay_of_the_checkpoint_in_a_script(site: LoginNode, tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/sh\n#OAR -k 600\n")
    path.chmod(0o755)
    result = site.oarsub("-S", path)
    assert (result.exit, result.err) == (0, '# Warning: "-k <seconds>" is obsolete, use --checkpoint.\n')
    assert site.jobs()[-1].checkpoint == 600


def test_mails_that_nobody_sends(site: LoginNode) -> None:
    assert site.oarsub("--notify", "[END] mail:alice@site.org", "true").err == NO_MAIL
    assert site.oarsub("--notify", "exec:/bin/mail:x", "true").exit == 16
    assert site.oarsub("--notify", "exec:/bin/true", "true").err == ""
    site.config = Config(mail_smtp_server="mail", mail_sender="oar@site.org")
    assert site.oarsub("--notify", "mail:alice@site.org", "true").err == ""


def test_what_does_not_go_with_connect_is_ignored_aloud(site: LoginNode) -> None:
    waiting = add_job(site.database, JobState.WAITING)
    said = f"# Error: job {waiting} is not running. Its current state is Waiting.\n"
    assert site.oarsub("-C", waiting, "-v").err == said
    ignored = "# Warning: -C opens a shell in a job that exists: these options are ignored: --resource\n"
    assert site.oarsub("-C", waiting, "-l", "core=1").err == ignored + said


def test_what_does_not_go_with_resubmit_is_ignored_aloud(site: LoginNode) -> None:
    ended = add_job(site.database, JobState.TERMINATED)
    said = f"# Warning: job {ended} is submitted as it was: these options are ignored: --resource\n"
    result = site.oarsub("--resubmit", ended, "-l", "nodes=2")
    assert (result.exit, result.err) == (0, said)
    assert site.oarsub("--resubmit", ended, "-v", "-J").err == ""


def test_nodes_are_named_in_short(site: LoginNode) -> None:
    job = site.submit("--nodelist", "node-1, node-2", "--exclude", "node-2", "-l", "nodes=1", "true")
    condition = "network_address IN ('', 'node-1', 'node-2') AND network_address NOT IN ('node-2')"
    assert f"({condition})" in (job.properties or "")
    assert job.initial_request == "oarsub --nodelist node-1, node-2 --exclude node-2 -l nodes=1 true"
    job = site.submit("--exclude", "node-1", "--exclude", "node-2,", "-p", "1=1 OR 2=1", "-l", "nodes=2", "true")
    assert "((1=1 OR 2=1) AND network_address NOT IN ('node-1', 'node-2'))" in (job.properties or "")
    refused = site.oarsub("--exclude", "node-1,node-2", "-l", "nodes=3", "true")
    assert "# 2 nodes match \"network_address NOT IN ('node-1', 'node-2')\", 3 asked\n" in refused.err


def test_a_dry_run_tells_the_dates_it_has_read(site: LoginNode) -> None:
    result = site.oarsub("--dry-run", "-v", "-r", "2031-03-04 10:00:00,12:00", "true")
    first, *_, last = result.out.splitlines()
    assert first.startswith("# Guessed reservation start: 2031-03-04 10:00:00 end: 2031-03-04 12:00:00")
    assert (result.exit, last) == (0, "# Reservation valid --> OK")
    assert site.jobs() == []


def test_an_estimate_needs_no_file(site: LoginNode) -> None:
    assert site.oarsub("--estimate", "-d", "/no/where", "./not-there.sh").err == ""


def _quotas(site: LoginNode, **sections: object) -> None:
    """Store a quota file as the server read it."""
    site.config = Config(quotas=True)
    sql = "INSERT INTO policy_log (kind, name, value) VALUES ('file', %s, %s)"
    execute_sql(site.database, sql, site.config.quotas_conf_file, json.dumps(sections))


NEVER = "can never start: it takes"
SEE_LIMITS = "Request less (oarsub -l), or see your limits: oarstat --limits\n"


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("nodes=2", f'4 resources, and the quota "*,*,*,/" allows 3 for each user. {SEE_LIMITS}'),
        (
            "resource_id=3,walltime=4",
            f'12 resource hours, and the quota "*,*,*,/" allows 10.5 for each user. {SEE_LIMITS}',
        ),
        ("nodes=1", ""),
        ("resource_id=3,walltime=1", ""),
    ],
)
def test_a_job_that_can_never_start_under_a_quota_says_so(site: LoginNode, request_: str, said: str) -> None:
    _quotas(site, quotas={"*,*,*,/": [3, -1, 10.5]})
    result = site.oarsub("-l", request_, "true")
    assert (result.exit, result.err) == (0, said and f"# Warning: the job {NEVER} {said}")
    assert len(site.jobs()) == 1


def test_a_job_that_one_alternative_or_one_period_allows_gets_no_warning(site: LoginNode) -> None:
    _quotas(site, quotas={"*,*,*,/": [3]})
    assert site.oarsub("-l", "nodes=2", "-l", "resource_id=3", "true").err == ""
    _quotas(site, quotas={"*,*,*,/": [3]}, night={"*,*,*,/": ["ALL"]}, periodical=[["19:00-7:00 * * *", "night"]])
    assert site.oarsub("-l", "nodes=4", "true").err == ""
    _quotas(site, quotas={"*,*,*,/": [3]}, night={"*,*,*,/": ["0.5*ALL"]}, periodical=[["19:00-7:00 * * *", "night"]])
    assert site.oarsub("-l", "nodes=2", "true").err == ""
    assert NEVER in site.oarsub("-l", "nodes=3", "true").err


def test_only_what_quotas_count_leads_to_a_warning(site: LoginNode) -> None:
    _quotas(site, quotas={"*,*,*,/": [3]})
    execute_sql(site.database, "UPDATE resources SET type = 'disk' WHERE network_address = 'node-1'")
    # of two nodes the smallest could have one core that counts
    execute_sql(site.database, "DELETE FROM resources WHERE resource_id = (SELECT max(resource_id) FROM resources)")
    assert site.oarsub("-l", "nodes=2", "true").err == ""
    assert NEVER in site.oarsub("-l", "nodes=3", "true").err
    execute_sql(site.database, "DELETE FROM admission_rules")  # they refuse a type that the site does not know
    assert site.oarsub("-q", "default", "-l", "nodes=3", "-t", "no_quotas", "true").err == ""
    site.config = Config(quotas=False)
    assert site.oarsub("-q", "default", "-l", "nodes=3", "true").err == ""


def test_each_job_of_an_array_counts_alone(site: LoginNode) -> None:
    _quotas(site, quotas={"*,*,*,/": [3]})
    assert site.oarsub("--array", 5, "-l", "resource_id=3", "true").err == ""
    assert f"each job of this array {NEVER}" in site.oarsub("--array", 5, "-l", "resource_id=4", "true").err

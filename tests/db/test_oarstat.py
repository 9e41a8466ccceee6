"""oarstat as a user sees it: every layout letter for letter, on a real database."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oar.cli.common.command import CommandResult, invoke
from oar.cli.common.render import places
from oar.cli.oarstat import main
from oar.lib.access.records import User
from oar.lib.base.times import DATE_FORMS, format_date
from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.jobs.records import Group, Level
from oar.lib.jobs.states import JobState, JobType, Reservation
from oar.lib.runtime import Runtime
from oar.lib.submission.sql_new_jobs import NewAlternative
from tests.builders import add_job, add_resources, execute_sql

OARPRINT = Path(__file__).parent.parent.parent / "oar" / "tools" / "oarprint"
EVE = User("eve", 1001)
BOB = User("bob", 1002)
OAR = User("oar", 999)
#: The time of all that happens here.
NOW = 1_930_000_000
DATE = format_date(NOW)


class Cluster:
    """A database with resources, and oarstat as eve calls it unless said otherwise."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.resources = add_resources(database, nodes=2, cores=2)
        self.config = Config()

    def job(self, state: JobState = JobState.WAITING, **columns: object) -> int:
        """Add a job, eve's unless said otherwise."""
        return add_job(self.database, state, **{"user": "eve", **columns})  # type: ignore[arg-type]

    def oarstat(
        self,
        *arguments: str | int,
        user: User = EVE,
        config: Config | None = None,
        environment: dict[str, str] | None = None,
    ) -> CommandResult:
        """Run oarstat."""
        runtime = Runtime(config or self.config, self.database)
        return invoke(main, [str(each) for each in arguments], runtime=runtime, user=user, environment=environment)

    def shows(self, *arguments: str | int, **settings: object) -> str:
        """Run oarstat, which must succeed without a word on stderr; return what it prints."""
        result = self.oarstat(*arguments, **settings)  # type: ignore[arg-type]
        assert (result.exit, result.err) == (0, "")
        return result.out

    def record(self, job_id: int, *arguments: str, **settings: object) -> dict[str, object]:
        """Return the record of a job as JSON has it."""
        document = json.loads(self.shows("-j", job_id, "-J", *arguments, **settings))
        record: dict[str, object] = document[str(job_id)]
        return record

    def execute(self, statement: str, *parameters: object) -> None:
        """Change something that no program of ours would."""
        execute_sql(self.database, statement, *parameters)

    def predict(self, job_id: int, start: int, resources: list[int]) -> None:
        """Write what a round of the scheduler would."""
        with self.database.begin() as tx:
            moldable = tx.new_jobs.moldables_of_jobs([job_id])[job_id][0].id
            tx.execute("INSERT INTO gantt_jobs_predictions_visu VALUES (%s, %s)", (moldable, start))
            tx.insert_many(
                "INSERT INTO gantt_jobs_resources_visu VALUES %s", [(moldable, number) for number in resources]
            )


@pytest.fixture
def cluster(settings: DatabaseSettings) -> Iterator[Cluster]:
    """Two nodes of two cores, no job, and a clock that stands still."""
    database = Database(settings, clock=lambda: NOW)
    yield Cluster(database)
    database.close()


# -------------------------------------------------------------------------------------------------------------- tables


def test_without_jobs_nothing_is_printed(cluster: Cluster) -> None:
    assert cluster.shows() == ""
    assert cluster.shows("-f") == ""
    assert cluster.shows("-J") == "{}\n"
    assert cluster.shows("-Y") == "--- {}\n"
    assert cluster.shows("-D") == "{}\n"


def test_layout_1(cluster: Cluster) -> None:
    first = cluster.job(JobState.RUNNING, on=cluster.resources[:1], name="md-run-long-name")
    second = cluster.job(queue="besteffort-long")
    assert cluster.shows() == (
        "Job id     Name           User           Submission Date     S Queue\n"
        "---------- -------------- -------------- ------------------- - ----------\n"
        f"{first:<10} md-run-long-na eve            {DATE} R default   \n"
        f"{second:<10}                eve            {DATE} W besteffort\n"
    )


def test_layout_1_of_arrays(cluster: Cluster) -> None:
    first = cluster.job(name="a-long-array-name", user="a-long-user")
    second = cluster.job(array_id=first, array_index=2)
    other = cluster.job()
    head = (
        "Job id    A. id     A. index  Name       User     Submission Date     S Queue\n"
        "--------- --------- --------- ---------- -------- ------------------- - --------\n"
    )
    rows = [
        f"{first:<9} {first:<9} 1         a-long-arr a-long-u {DATE} W default \n",
        f"{second:<9} {first:<9} 2                    eve      {DATE} W default \n",
        f"{other:<9} {other:<9} 1                    eve      {DATE} W default \n",
    ]
    assert cluster.shows("--array") == head + "".join(rows)
    assert cluster.shows("--array", first) == head + "".join(rows[:2])


def test_layout_2(cluster: Cluster) -> None:
    job = cluster.job(JobState.RUNNING, on=cluster.resources[:1], message="R=8,W=2:0:0,J=B,N=md (Karma=0.012)")
    cluster.execute("UPDATE jobs SET start_time = %s WHERE job_id = %s", NOW - 3909, job)
    waiting = cluster.job()
    assert cluster.shows("--format", 2) == (
        "Job id    S User     Duration   System message\n"
        "--------- - -------- ---------- ------------------------------------------------\n"
        f"{job:<9} R eve         1:05:09 R=8,W=2:0:0,J=B,N=md (Karma=0.012)\n"
        f"{waiting:<9} W eve         0:00:00 \n"
    )
    assert cluster.shows("--format", 2, "--array", job) == (
        "Job id    A. id     index S User     Duration   System message\n"
        "--------- --------- ----- - -------- ---------- --------------------------------\n"
        f"{job:<9} {job:<9} 1     R eve         1:05:09 R=8,W=2:0:0,J=B,N=md (Karma=0.012)\n"
    )


def test_layout_4_tells_when_jobs_start_and_how_long_they_may_still_run(cluster: Cluster) -> None:
    running = cluster.job(JobState.RUNNING, on=[cluster.resources[0]], walltime=7200, name="md-run-long-name")
    waiting, new = cluster.job(walltime=3661, queue="besteffort"), cluster.job()
    still = cluster.job(JobState.SUSPENDED, on=[cluster.resources[1]])
    ended = cluster.job(JobState.TERMINATED, on=[cluster.resources[1]])
    cluster.predict(waiting, NOW + 7200, [cluster.resources[0]])
    cluster.execute("UPDATE jobs SET start_time = %s WHERE job_id = ANY(%s)", NOW - 600, [running, still])
    cluster.execute("UPDATE jobs SET suspended = 'YES' WHERE job_id = %s", still)
    cluster.execute(
        "UPDATE job_state_logs SET date_start = %s WHERE job_id = %s AND job_state = 'Suspended'", NOW - 500, still
    )
    begun, coming = format_date(NOW - 600), format_date(NOW + 7200)
    assert cluster.shows("--format", "4", running, waiting, new, still, ended) == (
        "Job id     Name           User           Queue      S Start                 Walltime       Left\n"
        "---------- -------------- -------------- ---------- - ------------------- ---------- ----------\n"
        f"{running:<10} md-run-long-na eve            default    R {begun}    2:00:00    1:50:00\n"
        f"{waiting:<10}                eve            besteffort W {coming}    1:01:01          -\n"
        f"{new:<10}                eve            default    W -                      1:00:00          -\n"
        f"{still:<10}                eve            default    S {begun}    1:00:00    0:58:20\n"
        f"{ended:<10}                eve            default    T {DATE}    1:00:00          -\n"
    )
    assert cluster.shows("--format", "4", "--array", running) == (
        "Job id    A. id     index Name       User     Queue    S Start                 Walltime       Left\n"
        "--------- --------- ----- ---------- -------- -------- - ------------------- ---------- ----------\n"
        f"{running:<9} {running:<9} 1     md-run-lon eve      default  R {begun}    2:00:00    1:50:00\n"
    )
    assert cluster.shows("--format", "4", "-f", running) == cluster.shows("--format", "3", "-f", running)


def test_a_job_of_alternatives_has_the_walltime_of_the_one_that_is_meant(cluster: Cluster) -> None:
    choices = [NewAlternative(each, (Group("", (Level("resource_id", 1),)),)) for each in (600, 1200, 1800)]
    job = cluster.job(alternatives=choices)

    def walltime() -> str:
        return cluster.shows("--format", "4", "--no-header", job).split()[-2]

    assert walltime() == "0:10:00"
    with cluster.database.snapshot() as tx:
        second, third = (each.id for each in tx.new_jobs.moldables_of_jobs([job])[job][1:])
    cluster.execute("INSERT INTO gantt_jobs_predictions_visu VALUES (%s, %s)", third, NOW + 60)
    assert walltime() == "0:30:00"
    cluster.execute("UPDATE jobs SET assigned_moldable_job = %s WHERE job_id = %s", second, job)
    assert walltime() == "0:20:00"


def test_the_resources_of_jobs_stand_behind_every_layout(cluster: Cluster) -> None:
    one, two, three, four = cluster.resources
    large = cluster.job(JobState.RUNNING, on=[one, two, three])
    small, waiting = cluster.job(JobState.RUNNING, on=[four]), cluster.job()
    places = [f"node-1:{one}-{two},node-2:{three}", f"node-2:{four}", "-"]
    for layout in ("1", "2", "4"):
        plain = cluster.shows("--format", layout).splitlines()
        wide = cluster.shows("--format", layout, "-r").splitlines()
        assert wide[0] == f"{plain[0]:<{len(plain[1])}} Resources"
        assert wide[1] == f"{plain[1]} {'-' * 20}"
        assert wide[2:] == [f"{line} {place}" for line, place in zip(plain[2:], places, strict=True)]
    assert cluster.shows("--show-resources", "--no-header", small).split()[-1] == places[1]
    assert cluster.shows("-r", "-u", "nobody") == ""
    assert cluster.shows("-r", "-J", large, waiting) == cluster.shows("-J", large, waiting)


def test_the_layout_comes_from_the_option_the_environment_or_the_site(cluster: Cluster) -> None:
    cluster.job()
    first, second = cluster.shows(), cluster.shows("--format", 2)
    site = Config(oarstat_default_output_format=2)
    assert cluster.shows(config=site) == second
    assert cluster.shows(config=site, environment={"OAR_OARSTAT_OUTPUT_FORMAT": "1"}) == first
    assert cluster.shows(environment={"OAR_OARSTAT_OUTPUT_FORMAT": "2"}) == second
    assert cluster.shows(environment={"OAR_OARSTAT_OUTPUT_FORMAT": "x"}) == first
    assert cluster.shows("--format", 3) == second
    assert cluster.shows(environment={"OAR_OARSTAT_OUTPUT_FORMAT": "4"}) == cluster.shows("--format", 4)


def test_the_jobs_of_an_array_fold_into_one_line(cluster: Cluster) -> None:
    first = cluster.job(name="sweep")
    cluster.job(JobState.HOLD, array_id=first, array_index=2)
    single = cluster.job(JobState.HOLD)
    cluster.job(array_id=first, array_index=3)
    lines = cluster.shows("-c").splitlines()[2:]
    assert [line.split()[0] for line in lines] == [f"3@{first}", str(single)]
    assert [line[-12] for line in lines] == ["-", "H"]


# ----------------------------------------------------------------------------------------------------------- selection


def shown_ids(table: str) -> list[int]:
    """Return the ids in a table."""
    return [int(line.split()[0]) for line in table.splitlines()[2:]]


def test_only_jobs_that_have_not_ended_are_shown(cluster: Cluster) -> None:
    jobs = {state: cluster.job(state, on=cluster.resources[:1]) for state in JobState}
    ended = {jobs[JobState.TERMINATED], jobs[JobState.ERROR]}
    assert shown_ids(cluster.shows()) == sorted(set(jobs.values()) - ended)


def test_a_job_that_is_named_is_shown_also_when_it_has_ended(cluster: Cluster) -> None:
    ended, other = cluster.job(JobState.ERROR), cluster.job()
    assert shown_ids(cluster.shows("-j", ended)) == [ended]
    assert shown_ids(cluster.shows(ended, "-j", other)) == [ended, other]
    for words in ([f"-j{ended}-{other}"], ["-j", f"{ended},{other}"], [f"{ended}-{other}"]):
        assert shown_ids(cluster.shows(*words)) == [ended, other]


def test_the_job_may_come_from_the_environment(cluster: Cluster) -> None:
    job = cluster.job()
    assert shown_ids(cluster.shows("-j", environment={"OAR_JOB_ID": str(job)})) == [job]
    assert shown_ids(cluster.shows("-j", environment={"OAR_JOBID": str(job)})) == [job]
    assert cluster.oarstat("-j") == CommandResult(
        255, "", "/!\\ ERROR: No job id provided in command line or environment variables\n"
    )


def test_a_job_that_does_not_exist_is_a_warning_for_people_and_nothing_for_programs(cluster: Cluster) -> None:
    assert cluster.oarstat("-j", 99) == CommandResult(0, "", "# Warning: job 99 does not exist.\n")
    assert cluster.oarstat("-fj", 99) == CommandResult(0, "", "# Warning: job 99 does not exist.\n")
    assert cluster.oarstat("-sj", 99) == CommandResult(0, "", "# Warning: job 99 does not exist.\n")
    assert cluster.oarstat("99999999999999999999") == CommandResult(
        0, "", f"# Warning: job {2**63 - 1} does not exist.\n"
    )
    assert cluster.oarstat("-j", "90-99") == CommandResult(0, "", "# Warning: no job has an id from 90 to 99.\n")
    for options in (["-J"], ["-fJ"], ["-sJ"], ["-eJ"], ["-pJ"]):
        assert cluster.oarstat("-j", 99, *options) == CommandResult(0, "{}\n", "")


def test_the_jobs_of_a_user(cluster: Cluster) -> None:
    mine, his = cluster.job(), cluster.job(user="bob")
    ended = cluster.job(JobState.ERROR)
    assert shown_ids(cluster.shows("-u")) == [mine]
    assert shown_ids(cluster.shows("-u", "bob")) == [his]
    assert shown_ids(cluster.shows("-u", "-j", his)) == []
    assert shown_ids(cluster.shows("-u", "nobody")) == []
    assert shown_ids(cluster.shows("-u", "--sql", "true")) == [mine, ended]


def test_a_condition_of_sql_looks_at_all_states_and_narrows_what_else_is_given(cluster: Cluster) -> None:
    first = cluster.job(JobState.ERROR, project="x")
    second = cluster.job(array_id=first, array_index=2)
    copy = cluster.job(resubmit_job_id=first, project="x")
    assert shown_ids(cluster.shows("--sql", 'project = "x"')) == [first, copy]
    assert shown_ids(cluster.shows("--sql", f"resubmit_job_id='{first}'")) == [copy]
    assert shown_ids(cluster.shows("--sql", "project='x'", "-j", first, "-j", second)) == [first]
    assert shown_ids(cluster.shows("--sql", "project='default'", "--array", first)) == [second]
    assert json.loads(cluster.shows("--sql", "project = 'y'", "-J")) == {}


def test_a_condition_that_is_no_condition_is_refused(cluster: Cluster) -> None:
    result = cluster.oarstat("--sql", "1=1; DELETE FROM jobs")
    assert result == CommandResult(1, "", "# Error: invalid SQL condition: ';' is not allowed at character 4\n")
    result = cluster.oarstat("--sql", "nothing = 1")
    assert (result.exit, result.out) == (1, "")
    assert result.err.startswith('# Error: invalid SQL condition: unknown column "nothing" at character 1')
    assert len(result.err.splitlines()) == 1


WRONG_SECONDS = ("0", "x", "-1", "999999")
TWO_DATES = (
    '# Write two dates, the earlier one first: "YYYY-MM-DD hh:mm:ss, YYYY-MM-DD"\n'
    "# Or write: now,+1h; 8:00,now; yesterday,today; 7d,now."
)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-j", "1", "--array", "1"], "# Error: --job and --array are exclusive"),
        (["-c", "-f"], "# Error: --compact cannot be combined with --full or a machine format"),
        (["-c", "-J"], "# Error: --compact cannot be combined with --full or a machine format"),
        (["-p"], "No job specified\n# Write a job id: oarstat -e -j JOB_ID"),
        (["-e"], "No job specified\n# Write a job id: oarstat -e -j JOB_ID"),
        (["-r", "-c"], "# Error: --show-resources and --compact are exclusive"),
        (["-r", "--start"], "# Error: --show-resources can only be used with the table of jobs"),
        (["-p", "-j", "1", "--sql", "true"], "# Error: --properties and --sql are exclusive"),
        (
            ["-s"],
            "--state can only be used with an id\n# Write oarstat -s -j ID; jobs in a state: oarstat --states R",
        ),
        (["-g", "yesterday"], f"Bad syntax for --gantt\n{TWO_DATES}"),
        (["-g", "2031-01-02, 2031-01-01"], f"Bad syntax for --gantt\n{TWO_DATES}"),
        (["--accounting", "2031-01-01"], f"Bad syntax for --accounting\n{TWO_DATES}"),
        (["--accounting", "2031-01-01,2031-13-01"], f"Bad syntax for --accounting\n{TWO_DATES}"),
        (["--ascii"], "# Error: --ascii needs --gantt, and no machine format"),
        (["--density", "-J"], "# Error: --density needs --gantt, without --ascii"),
        (["--change"], "# Error: --change needs --explain"),
        (["--start", "--explain", "1"], "# Error: --start and --explain are exclusive"),
        (["--color=red"], '# Error: --color must be auto, always or never, not "red"'),
        (["--format", "5"], "# Error: --format must be 1, 2, 3 or 4"),
        (["--since", "soon"], f'# Error: "soon" is not a date: use {DATE_FORMS}'),
        *(([f"--watch={text}"], f'# Error: --watch takes a number of seconds, not "{text}"') for text in WRONG_SECONDS),
    ],
)
def test_what_does_not_go_together_is_said(cluster: Cluster, arguments: list[str], text: str) -> None:
    assert cluster.oarstat(*arguments) == CommandResult(1, "", text + "\n")


# ------------------------------------------------------------------------------------------------------------- details


def test_all_details_of_an_ended_job(cluster: Cluster) -> None:
    job = cluster.job(
        JobState.RUNNING,
        on=cluster.resources[1:3],
        types=["idempotent", "token:x=2"],
        after=[3, 4],
        walltime=7200,
        name="md",
        project="bio",
        command="./md.sh",
        launching_directory="/home/eve",
        stdout_file="OAR.%jobname%.%jobid%.stdout",
        stderr_file="OAR.%user%.%arrayindex%.stderr",
        properties="(desktop_computing = 'NO') AND (drain='NO')",
        message="R=2,W=2:0:0,J=B,N=md,P=bio,T=idempotent",
        initial_request="oarsub -t idempotent -n md -l /nodes=1/core=2 ./md.sh",
        cpuset_name="eve_1",
    )
    cluster.execute(
        "UPDATE jobs SET state = 'Terminated', exit_code = 768, start_time = %s, stop_time = %s WHERE job_id = %s",
        NOW + 8,
        NOW + 1790,
        job,
    )
    with cluster.database.begin() as tx:
        tx.events.add("SWITCH_INTO_TERMINATE_STATE", job, f"[bipbip {job}] Ask to change the job state")
    assert cluster.shows("-fj", job) == (
        f"Job_Id: {job}\n"
        f"    job_array_id = {job}\n"
        "    job_array_index = 1\n"
        "    name = md\n"
        "    project = bio\n"
        "    owner = eve\n"
        "    state = Terminated\n"
        '    wanted_resources = -l "/resource_id=2,walltime=2:0:0" \n'
        "    types = idempotent, token:x=2\n"
        "    dependencies = 3 4\n"
        f"    assigned_resources = {cluster.resources[1]}+{cluster.resources[2]}\n"
        "    assigned_hostnames = node-1+node-2\n"
        "    queue = default\n"
        "    command = ./md.sh\n"
        "    exit_code = 768 (3,0,0)\n"
        "    launchingDirectory = /home/eve\n"
        f"    stdout_file = OAR.md.{job}.stdout\n"
        "    stderr_file = OAR.eve.1.stderr\n"
        "    jobType = PASSIVE\n"
        "    properties = (desktop_computing = 'NO') AND (drain='NO')\n"
        "    reservation = None\n"
        "    walltime = 2:0:0\n"
        f"    submissionTime = {DATE}\n"
        f"    startTime = {format_date(NOW + 8)}\n"
        f"    stopTime = {format_date(NOW + 1790)}\n"
        "    cpuset_name = eve_1\n"
        "    initial_request = oarsub -t idempotent -n md -l /nodes=1/core=2 ./md.sh\n"
        "    message = R=2,W=2:0:0,J=B,N=md,P=bio,T=idempotent\n"
        "    scheduledStart = no prediction\n"
        "    resubmit_job_id = 0\n"
        "    events = \n"
        f"{DATE}> SWITCH_INTO_TERMINATE_STATE: [bipbip {job}] Ask to change the job state\n"
        "\n"
    )


def test_layout_3_has_other_names(cluster: Cluster) -> None:
    job = cluster.job(JobState.RUNNING, on=cluster.resources[:1])
    text = cluster.shows("-fj", job, "--format", 3)
    assert text.startswith(f"id: {job}\n    array_id = {job}\n    array_index = 1\n")
    for key in ("launching_directory", "type", "submission_time", "start_time", "scheduled_start"):
        assert f"\n    {key} = " in text
    for key in ("launchingDirectory", "jobType", "submissionTime", "startTime", "scheduledStart"):
        assert key not in text


def test_a_waiting_job_shows_its_predicted_start_and_nothing_of_a_start(cluster: Cluster) -> None:
    job = cluster.job()
    cluster.predict(job, NOW + 60, cluster.resources[:1])
    text = cluster.shows("-fj", job)
    assert f"    scheduledStart = {format_date(NOW + 60)}\n" in text
    assert "startTime" not in text
    assert "stopTime" not in text
    assert "exit_code" not in text
    assert "    assigned_resources = \n" in text
    assert "reserved_resources" not in text


def test_a_reservation_shows_what_it_will_have(cluster: Cluster) -> None:
    job = cluster.job(reservation=Reservation.SCHEDULED, start_time=NOW + 600)
    cluster.predict(job, NOW + 600, cluster.resources[:3])
    cluster.execute("UPDATE resources SET state = 'Suspected' WHERE resource_id = %s", cluster.resources[1])
    one, two, three = cluster.resources[:3]
    text = cluster.shows("-fj", job)
    assert f"    reserved_resources = {one}+({two})+{three}\n" in text
    assert "startTime" not in text
    assert cluster.record(job)["reserved_resources"] == [one, two, three]
    assert cluster.record(job)["start_time"] == 0


def test_an_interactive_job_has_no_files(cluster: Cluster) -> None:
    job = cluster.job(job_type=JobType.INTERACTIVE, stdout_file=None, stderr_file=None, command="")
    assert "    stdout_file = <interactive shell>\n" in cluster.shows("-fj", job)


def test_no_value_can_forge_a_line(cluster: Cluster) -> None:
    evil = "x\n    state = Terminated\x1b[2J\tJob_Id: 1"
    job = cluster.job(
        name=evil, command=evil, project=evil, launching_directory=evil, message=evil, properties=evil, stdout_file=evil
    )
    with cluster.database.begin() as tx:
        tx.events.add("OUTPUT_FILES", job, evil)
    text = cluster.shows("-f")
    assert [line for line in text.splitlines() if line.startswith("Job_Id:")] == [f"Job_Id: {job}"]
    assert [line for line in text.splitlines() if line.startswith("    state =")] == ["    state = Waiting"]
    assert "    name = x\\n    state = Terminated\\x1b[2J\\tJob_Id: 1\n" in text
    assert all(each.isprintable() for each in text.splitlines())
    assert len(cluster.shows().splitlines()) == len(cluster.shows("--format", 2).splitlines()) == 3
    assert len(cluster.shows("-ej", job).splitlines()) == 2


def test_the_request_of_another_is_not_shown_unless_the_site_says_so(cluster: Cluster) -> None:
    job = cluster.job(initial_request="oarsub secret", command="run")

    def seen(user: User, **options: bool) -> tuple[object, object]:
        record = cluster.record(job, user=user, config=Config(**options))
        text = cluster.shows("-fj", job, user=user, config=Config(**options))
        assert f"    initial_request = {record['initial_request']}\n" in text
        assert f"    command = {record['command']}\n" in text
        gantt = json.loads(cluster.shows("-g", GANTT, "-J", user=user, config=Config(**options)))["jobs"][str(job)]
        assert (gantt["initial_request"], gantt["command"]) == (record["initial_request"], record["command"])
        return record["initial_request"], record["command"]

    cluster.predict(job, NOW, [])
    assert seen(EVE) == seen(OAR) == ("oarsub secret", "run")
    assert seen(BOB) == ("", "run")
    assert seen(BOB, oarstat_show_other_users_initial_request=True) == ("oarsub secret", "run")
    assert seen(BOB, oarstat_private=True) == ("", "")
    assert seen(EVE, oarstat_private=True) == ("oarsub secret", "run")


# ------------------------------------------------------------------------------------------------------------- records

KEYS = [
    "Job_Id", "id", "array_id", "array_index", "name", "project", "owner", "job_user", "state", "wanted_resources",
    "types", "dependencies", "assigned_resources", "assigned_network_address", "queue", "command", "exit_code",
    "launchingDirectory", "launching_directory", "stdout_file", "stderr_file", "jobType", "type", "properties",
    "reservation", "advance_reservation", "walltime", "submissionTime", "submission_time", "startTime", "start_time",
    "stopTime", "stop_time", "cpuset_name", "initial_request", "message", "scheduledStart", "scheduled_start",
    "foreseen_at", "resubmit_job_id", "resubmitted_as", "events", "outcome", "end", "cpu_seconds", "cpu_efficiency",
    "max_rss", "array_limit", "checkpoint", "checkpoint_signal", "notify", "suspended", "karma",
]  # fmt: skip


def test_a_record_has_both_families_of_keys_and_numbers_where_they_are_numbers(cluster: Cluster) -> None:
    job = cluster.job(JobState.RUNNING, on=cluster.resources[:3], types=["besteffort"], properties=None)
    record = cluster.record(job)
    assert list(record) == KEYS
    assert record["Job_Id"] == record["id"] == job
    assert record["name"] == record["properties"] == ""
    assert record["state"] == "Running"
    assert record["assigned_resources"] == cluster.resources[:3]
    assert record["assigned_network_address"] == ["node-1", "node-2"]
    assert record["types"] == ["besteffort"]
    assert (record["walltime"], record["start_time"], record["stop_time"]) == (3600, NOW, 0)
    assert record["scheduled_start"] is None
    assert record["exit_code"] is None


def test_states_alone(cluster: Cluster) -> None:
    job, other = cluster.job(JobState.RUNNING, on=cluster.resources[:1]), cluster.job()
    assert cluster.shows("-sj", job, "-j", other) == f"{job}: Running\n{other}: Waiting\n"
    assert cluster.shows("-J", "-s", "-j", job) == f'{{\n   "{job}" : "Running"\n}}\n'
    assert cluster.shows("-Y", "-s", "-j", job) == f"---\n{job}: Running\n"
    assert f'<item key="{job}">Running</item>' in cluster.shows("-X", "-s", "-j", job)


def test_events_alone(cluster: Cluster) -> None:
    job = cluster.job()
    with cluster.database.begin() as tx:
        tx.events.add("OUTPUT_FILES", job, "Cannot create\nPermission denied\n")
    start = f"{DATE}> [{job}] OUTPUT_FILES: "
    assert cluster.shows("-ej", job) == f"{start}Cannot create\n{' ' * len(start)}Permission denied\n"
    assert cluster.shows("-e", "--array", job) == cluster.shows("-ej", job)
    assert json.loads(cluster.shows("-eJ", "-j", job)) == {
        str(job): [{"date": NOW, "type": "OUTPUT_FILES", "description": "Cannot create\nPermission denied\n"}]
    }


def test_properties_alone_are_what_oarprint_reads(cluster: Cluster) -> None:
    job = cluster.job(JobState.RUNNING, on=cluster.resources[:1])
    cluster.execute("UPDATE resources SET switch = %s", "it's \\ 1")
    (line,) = cluster.shows("-pj", job).splitlines()
    assert " network_address = 'node-1' , switch = 'it\\'s \\\\ 1' , type = 'default' " in line
    assert "state" not in line
    assert "resource_id" not in line
    printed = subprocess.run(
        [sys.executable, "-I", OARPRINT, "switch", "-P", "switch,cpuset", "-f", "-"],
        input=line,
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout == "it's \\ 1 0\n"
    (row,) = json.loads(cluster.shows("-pJ", "-j", job))[str(job)]
    assert (row["resource_id"], row["state"], row["switch"]) == (cluster.resources[0], "Alive", "it's \\ 1")


# --------------------------------------------------------------------------------------------- gantt and consumption

GANTT = f"{format_date(NOW - 100)}, {format_date(NOW + 100)}"


def test_the_gantt_has_what_ran_runs_and_will_run(cluster: Cluster) -> None:
    one, two, three = cluster.resources[:3]
    running = cluster.job(JobState.RUNNING, on=[one], walltime=50)
    coming, later, gone = cluster.job(walltime=60), cluster.job(), cluster.job(JobState.TERMINATED, on=[three])
    cluster.predict(coming, NOW + 90, [two, three])
    cluster.predict(later, NOW + 101, [two])
    cluster.job(JobState.ERROR)
    old = cluster.job(JobState.TERMINATED, on=[two])
    cluster.execute("UPDATE jobs SET start_time = %s, stop_time = %s WHERE job_id = %s", NOW - 300, NOW - 101, old)
    cluster.execute("INSERT INTO resource_logs (resource_id, attribute, value, date_start, date_stop)"
                    " VALUES (%s, 'state', 'Absent', %s, %s)", two, NOW - 200, NOW - 50)  # fmt: skip
    document = json.loads(cluster.shows("-g", GANTT, "-J"))
    assert sorted(document) == ["dead_resources", "jobs", "resources"]
    assert sorted(document["jobs"]) == sorted(map(str, (running, coming, gone)))
    planned = document["jobs"][str(coming)]
    assert (planned["start_time"], planned["stop_time"]) == (NOW + 90, NOW + 150)
    assert (planned["resource_id"], planned["network_address"]) == ([two, three], ["node-1", "node-2"])
    assert document["jobs"][str(running)]["stop_time"] == NOW + 50
    assert [row["resource_id"] for row in document["resources"]] == cluster.resources
    assert document["dead_resources"] == {str(two): [[NOW - 200, NOW - 50, "Absent"]]}
    assert cluster.shows("-g", GANTT) == cluster.shows("-g", GANTT, "-D")


def test_the_density_is_the_share_of_each_node_that_was_used(cluster: Cluster) -> None:
    one, two, three = cluster.resources[:3]
    half = cluster.job(JobState.TERMINATED, on=[one])  # a quarter of node-1
    spare = cluster.job(JobState.TERMINATED, on=[three], types=["besteffort"])
    for job in (half, spare):
        cluster.execute("UPDATE jobs SET start_time = %s, stop_time = %s WHERE job_id = %s", NOW - 100, NOW, job)
    cluster.execute("INSERT INTO resource_logs (resource_id, attribute, value, date_start, date_stop)"
                    " VALUES (%s, 'state', 'Absent', %s, %s)", two, NOW - 100, NOW - 50)  # fmt: skip
    assert json.loads(cluster.shows("-g", GANTT, "--density", "-J")) == {
        "node-1": {"used": 0.25, "besteffort": 0, "unusable": 0.125},
        "node-2": {"used": 0.25, "besteffort": 0.25, "unusable": 0},
    }
    assert cluster.shows("-g", GANTT, "--density").splitlines() == [
        "Node                         Used  Besteffort  Unusable",
        "node-1                      25.0%        0.0%     12.5%",
        "node-2                      25.0%       25.0%      0.0%",
    ]


def test_the_accuracy_says_how_far_jobs_started_from_their_first_predictions(cluster: Cluster) -> None:
    assert cluster.shows("--accuracy") == "No job with a prediction has started since then.\n"
    for number, (queue, real) in enumerate([("default", NOW - 40), ("default", NOW - 10), ("night", NOW - 50)]):
        cluster.execute(
            "INSERT INTO job_predictions (job_id, queue_name, first_date, first_start, real_start)"
            " VALUES (%s, %s, %s, %s, %s)", number + 1, queue, NOW - 90, NOW - 40, real)  # fmt: skip
    assert cluster.shows("--accuracy", "--since", "1d").splitlines() == [
        "Queue                Jobs  Error of half  Error of 90 %  Later than predicted",
        "default                 2          0:0:0         0:0:30                 50.0%",
        "night                   1         0:0:10         0:0:10                  0.0%",
        "(all)                   3         0:0:10         0:0:30                 33.3%",
    ]
    told = json.loads(cluster.shows("--accuracy", "-J"))
    assert (told["all"]["jobs"], told["queues"]["night"]["half"], told["queues"]["default"]["late"]) == (3, 10, 1)
    refused = cluster.oarstat("--accuracy", "-j", "1")
    assert (refused.exit, refused.err) == (
        1, "# Error: --accuracy can only be combined with --since and a machine format\n"
    )  # fmt: skip


WINDOW = (NOW - NOW % 86400, NOW - NOW % 86400 + 86399)
DAYS = f"{format_date(WINDOW[0])}, {format_date(WINDOW[1] + 1)}"


def consume(cluster: Cluster, user: str, project: str, asked: int, used: int) -> None:
    """Write what oaraccounting would."""
    for kind, seconds in (("ASKED", asked), ("USED", used)):
        cluster.execute(
            "INSERT INTO accounting VALUES (%s, %s, %s, %s, 'default', %s, %s)", *WINDOW, user, project, kind, seconds
        )


def test_consumption_by_user(cluster: Cluster) -> None:
    consume(cluster, "eve", "bio", 144000, 97220)
    consume(cluster, "bob", "x", 5, 4)
    consume(cluster, "eve", "phys", 0, 1)
    first, last = format_date(WINDOW[0]), format_date(WINDOW[1])
    assert cluster.shows("--accounting", DAYS) == (
        "    User       First window starts  Last window ends     Asked (seconds)  Used (seconds)\n"
        "    ---------- -------------------- -------------------- ---------------- ----------------\n"
        f"    bob        {first}  {last}                 5                4\n"
        f"    eve        {first}  {last}            144000            97221\n"
    )
    assert cluster.shows("--accounting", DAYS, "--no-header").startswith("    bob  ")


def test_consumption_of_one_user(cluster: Cluster) -> None:
    consume(cluster, "eve", "bio", 144000, 97220)
    cluster.job(project="bio")
    cluster.execute("UPDATE jobs SET last_karma = 0.012")
    assert cluster.shows("--accounting", DAYS, "-u") == (
        f"Usage summary for user 'eve' from {DAYS[:10]} to {format_date(WINDOW[1] + 1)[:10]}:\n"
        "-------------------------------------------------------------\n"
        f"Start of the first window:   {format_date(WINDOW[0])}\n"
        f"End of the last window:      {format_date(WINDOW[1])}\n"
        "Asked consumption:           144000 ( 1 day 16 hours 0 second )\n"
        "Used consumption:            97220 ( 1 day 3 hours 20 seconds )\n"
        "By project consumption:\n"
        "  bio:\n"
        "    Asked:                   144000 ( 1 day 16 hours 0 second )\n"
        "    Used:                    97220 ( 1 day 3 hours 20 seconds )\n"
        "    Last Karma:              0.012\n"
    )
    assert "Start of the first window:   No window found\n" in cluster.shows("--accounting", DAYS, "-u", "bob")
    assert json.loads(cluster.shows("--accounting", DAYS, "-u", "-J")) == {
        "eve": {
            "first_window_start": WINDOW[0],
            "last_window_stop": WINDOW[1],
            "asked": 144000,
            "used": 97220,
            "projects": {"bio": {"asked": 144000, "used": 97220, "karma": 0.012}},
        }
    }


def test_columns_stand_below_each_other_whatever_the_script(cluster: Cluster) -> None:
    names = ["計算計算計算計算", "re\u0301sume\u0301", "plain"]
    for name in names:
        cluster.job(name=name, project=name)
    lines = [line for line in cluster.shows("--no-header").splitlines() if line]
    assert [places(line[: line.index(DATE)]) for line in lines] == [41] * 3
    table = cluster.shows("--fields", "name,state", "--no-header").splitlines()
    assert [places(line[: line.index("Waiting")]) for line in table] == [17] * 3

"""What oarsub prints, how it ends and what it leaves in the database."""

import json
import os
import pwd
import re
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oar.cli.common.command import CommandResult
from oar.cli.oarsub_parts import reservation
from oar.cli.oarsub_parts.interactive import Listener
from oar.lib.access.records import User
from oar.lib.bus.messages import Tag, Wake
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs.records import Dependency, Group, Job, Level
from oar.lib.jobs.states import JobState, JobType, Reservation
from tests.builders import add_job, add_resources, execute_sql, move_job
from tests.frontend import LoginNode, add_rules
from tests.postgres import PostgreSQL

VERIFY = "# Error: please verify your job submission syntax.\n"
WALLTIME = "[ADMISSION RULE] Set default walltime to 7200.\n"
TYPE = "[ADMISSION RULE] Modify resource description with type constraints\n"
BOB = User("bob", 0)


@pytest.fixture
def site(database: Database) -> LoginNode:
    """Four nodes of two cores, on which nobody has worked yet, with the default admission rules."""
    add_resources(database, nodes=4, cores=2)
    add_rules(database)
    return LoginNode(database)


class TestJob:
    def test_what_is_printed_is_what_programs_read(self, site: LoginNode) -> None:
        job_id = site.submit("true").id
        assert site.oarsub("true") == CommandResult(0, f"{WALLTIME}OAR_JOB_ID={job_id + 1}\n", "")

    def test_the_job_is_there_at_once_and_the_server_is_told(self, site: LoginNode) -> None:
        job = site.submit("-l", "/nodes=2,walltime=1:30", "-n", "fem", "--project", "bio", "sleep 5")
        assert job.state is JobState.WAITING
        assert (job.user, job.queue, job.project, job.command) == ("alice", "default", "bio", "sleep 5")
        assert job.message == "R=4,W=1:30:0,J=B,N=fem,P=bio"
        assert job.properties == "(desktop_computing = 'NO') AND (drain='NO')"
        assert job.cpuset_name == f"alice_{job.id}"
        assert (job.stdout_file, job.stderr_file) == ("OAR.fem.%jobid%.stdout", "OAR.fem.%jobid%.stderr")
        assert job.launching_directory == os.getcwd()
        assert job.initial_request == "oarsub -l /nodes=2,walltime=1:30 -n fem --project bio sleep 5"
        assert (job.array_id, job.array_index, job.exit_code) == (job.id, 1, None)
        assert site.told == [Wake(Tag.QSUB)]

    def test_everything_that_describes_it_is_stored(self, site: LoginNode) -> None:
        job = site.submit(
            "-l", "{cpuset='0'}/nodes=2+/resource_id=1", "-l", "nodes=1,walltime=3", "-t", "idempotent", "x"
        )
        with site.database.begin() as tx:
            first, second = tx.new_jobs.moldables_of_jobs([job.id])[job.id]
            assert tx.jobs.types([job.id]) == {job.id: ("idempotent",)}
            keys = tx.access.find_challenge(job.id)
            assert [(each.state, each.stop) for each in tx.jobs.state_changes([job.id])[job.id]] == [("Waiting", 0)]
        assert first.groups == (
            Group("(cpuset='0') AND type = 'default'", (Level("network_address", 2),)),
            Group("type = 'default'", (Level("resource_id", 1),)),
        )
        assert (first.walltime, second.walltime) == (7200, 10800)
        assert keys is not None
        assert re.fullmatch(r"[0-9]{39,}", keys.challenge)
        assert keys.private_key is None

    def test_hold(self, site: LoginNode) -> None:
        assert site.submit("--hold", "true").state is JobState.HOLD
        assert site.told == []

    def test_the_command_is_kept_as_it_is(self, site: LoginNode) -> None:
        command = '\n\n#!/bin/sh\necho "it\'s" $HOME; é ; %s %(x)s\n'
        assert site.submit(command).command == command

    def test_words_behind_two_dashes_are_joined_as_a_shell_would_cut_them(self, site: LoginNode) -> None:
        assert site.submit("-l", "nodes=1", "--", "./a.out", "--n", "3 4").command == "./a.out --n '3 4'"

    def test_options_of_programs_that_submit_here(self, site: LoginNode) -> None:
        """dask-jobqueue, submitit, gridscale and execo type these."""
        job = site.submit(
            "-n", "dask-worker", "-l", "/nodes=1/resource_id=2,walltime=00:30:00", "-t", "besteffort", "\n\nrun"
        )
        assert (job.queue, job.command) == ("besteffort", "\n\nrun")
        job = site.submit(
            "-E", "/d/%jobid%_0_log.err", "-O", "/d/%jobid%_0_log.out", "--checkpoint", 60, "-n", "s", "a; b"
        )
        assert (job.checkpoint, job.checkpoint_signal, job.stdout_file) == (60, 12, "/d/%jobid%_0_log.out")
        job = site.submit("-O/tmp/out", "-E/tmp/err", " -l walltime=0:15".strip(), "-t", "origin=execo", "x")
        assert (job.stdout_file, job.stderr_file) == ("/tmp/out", "/tmp/err")

    def test_a_checkpoint_signal_by_name(self, site: LoginNode) -> None:
        assert site.submit("--signal", "SIGUSR1", "true").checkpoint_signal == 10

    def test_the_old_spelling_of_the_checkpoint(self, site: LoginNode) -> None:
        result = site.oarsub("-k", "600", "--signal", "2", "-t", "idempotent", "/path/prog")
        assert result.err.splitlines()[0] == '# Warning: "-k <seconds>" is obsolete, use --checkpoint.'
        (job,) = site.jobs()
        assert (job.checkpoint, job.checkpoint_signal, job.command) == (600, 2, "/path/prog")

    def test_types_in_the_request_are_spelt_as_readers_look_for_them(self, site: LoginNode) -> None:
        job = site.submit("--type=idempotent", "-tstate=permissive", "--ty", "timesharing", "x")
        assert job.initial_request == "oarsub -t idempotent -t state=permissive -t timesharing x"

    def test_dependencies(self, site: LoginNode) -> None:
        first = site.submit("a")
        second = site.submit("-a", f"{first.id}:ok,60,]600", "--after", first.id, "b")
        with site.database.begin() as tx:
            assert tx.jobs.dependencies([second.id])[second.id] == [Dependency(second.id, first.id)]

    def test_a_relative_directory_is_taken_from_where_one_is(self, site: LoginNode) -> None:
        assert site.submit("-d", "sub/dir", "x").launching_directory == f"{os.getcwd()}/sub/dir"
        assert site.submit("-d", "/scratch/é", "x").launching_directory == "/scratch/é"

    def test_double_quotes_in_conditions_are_texts(self, site: LoginNode) -> None:
        job = site.submit("-p", 'network_address = "node-1" or cpuset=1', "x")
        assert job.properties == (
            "((network_address = 'node-1' or cpuset='1') AND desktop_computing = 'NO') AND (drain='NO')"
        )

    def test_a_noop_job_needs_no_command(self, site: LoginNode) -> None:
        assert site.submit("-t", "noop").command == ""

    def test_what_rules_print_is_kept_where_the_site_wants_it(self, site: LoginNode) -> None:
        site.config = site.config.replace(oarsub_store_adm_rules_outputs=True)
        job = site.submit("x")
        with site.database.begin() as tx:
            (event,) = tx.events.of_jobs([job.id])[job.id]
        assert (event.type, event.description, event.to_check) == (EventType.ADM_RULES_MSG_OUT, WALLTIME, False)


class TestMachineFormats:
    def test_json_is_an_object_per_job_with_a_text_alone_on_its_line(self, site: LoginNode) -> None:
        result = site.oarsub("-J", "--array", 2, "true")
        documents = [f'{{\n   "job_id" : "{job.id}"\n}}\n' for job in site.jobs()]
        assert result == CommandResult(0, "".join(documents), "")

    def test_other_formats_hold_the_same_with_one_item_per_line_of_xml(self, site: LoginNode) -> None:
        yaml, perl, xml = (site.oarsub(option, "true").out for option in ("-Y", "-D", "-X"))
        first, second, third = (job.id for job in site.jobs())
        assert yaml == f"---\njob_id: '{first}'\n"
        assert perl == f"{{'job_id' => '{second}'}}\n"
        assert f'<item key="job_id">{third}</item>' in [line.strip() for line in xml.splitlines()]


class TestArray:
    def test_all_jobs_are_printed_then_the_array(self, site: LoginNode) -> None:
        result = site.oarsub("--array", 2, "-l", "resource_id=1", "./w.sh")
        first, second = site.jobs()
        assert result.out == (f"{WALLTIME}OAR_JOB_ID={first.id}\nOAR_JOB_ID={second.id}\nOAR_ARRAY_ID={first.id}\n")
        assert [(job.array_id, job.array_index) for job in (first, second)] == [(first.id, 1), (first.id, 2)]
        assert site.told == [Wake(Tag.QSUB)]

    def test_an_array_of_one_is_a_job(self, site: LoginNode) -> None:
        assert "OAR_ARRAY_ID" not in site.oarsub("--array", 1, "true").out

    def test_parameters_are_lines_of_shell(self, site: LoginNode, tmp_path: Path) -> None:
        path = tmp_path / "parameters"
        path.write_text("1 'a b'  # first\n\n  # nothing\n2 \"$X\"\r\n")
        assert site.oarsub("--array-param-file", path, "./run").exit == 0
        assert [job.command for job in site.jobs()] == ["./run 1 'a b'", './run 2 "$X"']

    def test_an_empty_parameter_file_and_one_that_is_not_there(self, site: LoginNode, tmp_path: Path) -> None:
        (tmp_path / "none").write_text("# nothing\n")
        assert site.oarsub("--array-param-file", tmp_path / "none", "x").exit == 6
        result = site.oarsub("--array-param-file", "/no/where", "x")
        assert (result.exit, result.err) == (
            12,
            "[ERROR] Cannot open the parameter file /no/where.\n# No such file or directory\n",
        )
        assert site.is_empty()

    def test_ten_thousand_jobs_are_complete(self, site: LoginNode) -> None:
        assert site.oarsub("--array", 10000, "-t", "idempotent", "true").exit == 0
        for table in ("jobs", "job_state_logs", "moldable_job_descriptions", "job_types", "challenges"):
            assert site.count(table) == 10000
        with site.database.begin() as tx:
            assert tx.value("SELECT count(DISTINCT challenge) FROM challenges") == 10000
            assert tx.row("SELECT min(array_index), max(array_index), count(DISTINCT array_id) FROM jobs") == (
                1,
                10000,
                1,
            )


class TestScript:
    @pytest.fixture
    def script(self, tmp_path: Path) -> Callable[[str], str]:
        def write(text: str) -> str:
            path = tmp_path / "run.sh"
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
            path.chmod(0o755)
            return str(path)

        return write

    def test_options_of_the_script_count(self, site: LoginNode, script: Callable[[str], str]) -> None:
        path = script(
            "#!/bin/sh\n#OAR -l /nodes=2,walltime=0:30\n#OAR --name=fem\n#OARx -n no\n# OAR -n no\n##OAR -n no\n"
            '#OAR -p "cpuset=0"\n#OAR -t idempotent \n#OAR --hold\n#OAR -O=/tmp/o\necho\n#OAR -E /tmp/e\r\n'
        )
        job = site.submit("-S", f"{path} arg")
        assert (job.name, job.command, job.state) == ("fem", f"{path} arg", JobState.HOLD)
        assert job.message == "R=2,W=0:30:0,J=B,N=fem,T=idempotent"
        assert (job.stdout_file, job.stderr_file) == ("/tmp/o", "/tmp/e")
        assert job.properties is not None
        assert job.properties.startswith("((cpuset='0')")
        assert job.initial_request == (
            f'oarsub -S {path} arg; #OAR -l /nodes=2,walltime=0:30; #OAR --name=fem; #OAR -p "cpuset=0";'
            " #OAR -t idempotent; #OAR --hold; #OAR -O=/tmp/o; #OAR -E /tmp/e"
        )

    def test_lists_are_added_and_the_command_line_wins(self, site: LoginNode, script: Callable[[str], str]) -> None:
        path = script("#OAR -n script\n#OAR -t idempotent\n#OAR -l nodes=2\n#OAR -d /script\n")
        result = site.oarsub("-n", "typed", "-t", "state=permissive", "-l", "nodes=1", "-S", path)
        assert result.err == (
            "# Warning: ignore script value for name parameter: script; another value was given on the command line.\n"
            "# Warning: -d /script: this directory does not exist here, the job fails where it does not.\n"
        )
        (job,) = site.jobs()
        with site.database.begin() as tx:
            assert tx.jobs.types([job.id])[job.id] == ("state=permissive", "idempotent")
            sizes = [each.groups[0].levels[0].quantity for each in tx.new_jobs.moldables_of_jobs([job.id])[job.id]]
        assert (sizes, job.name, job.launching_directory) == ([1, 2], "typed", "/script")

    def test_requests_of_the_script_may_be_replaced(self, site: LoginNode, script: Callable[[str], str]) -> None:
        site.config = site.config.replace(oarsub_script_resources="replace")
        job = site.submit("-l", "nodes=1", "-S", script("#OAR -l nodes=2\n"))
        assert job.message.startswith("R=2,")
        assert site.count("moldable_job_descriptions") == 1

    def test_values_are_unquoted_as_nextflow_writes_them(self, site: LoginNode, script: Callable[[str], str]) -> None:
        path = script("#!/bin/bash\n#OAR -d \"/data/some\\ dir \"\n#OAR -n 'it is'\n#OAR -p \"cpuset='1'\"\n")
        job = site.submit("-S", path)
        assert (job.launching_directory, job.name) == ("/data/some dir ", "it is")

    def test_a_file_that_does_not_begin_as_a_script_is_not_scanned(
        self, site: LoginNode, script: Callable[[str], str]
    ) -> None:
        assert site.submit("-S", script("echo\n#OAR -n no\n")).name is None

    def test_a_line_may_hold_several_options(self, site: LoginNode, script: Callable[[str], str]) -> None:
        text = "#OAR -n two -t 'a b' -t besteffort\n#OAR --checkpoint 5 -l \"nodes=1/resource_id=2\" --hold\n"
        result = site.oarsub("-S", script("#!/bin/sh\n" + text))
        assert "unknown job type: a b" in result.err
        job = site.submit("-S", script("#!/bin/sh\n" + text.replace("'a b'", "idempotent")))
        assert (job.name, job.checkpoint, job.state) == ("two", 5, JobState.HOLD)
        with site.database.snapshot() as tx:
            assert tx.jobs.types([job.id])[job.id] == ("idempotent", "besteffort")

    def test_words_that_are_no_options_belong_to_the_value(self, site: LoginNode, script: Callable[[str], str]) -> None:
        job = site.submit("-S", script("#!/bin/sh\n#OAR -n my job -t x\n#OAR -p resource_id > -1\n"))
        assert job.name == "my job -t x"
        assert "resource_id > -1" in (job.properties or "")

    def test_lines_that_are_not_understood_are_all_named(self, site: LoginNode, script: Callable[[str], str]) -> None:
        path = script("#!/bin/sh\n#OAR -I\n#OAR --nope x\n#OAR -n\n#OAR -h\n#OAR --hold yes\n#OAR -k x\n#OAR word\n")
        result = site.oarsub("-S", path)
        assert result.exit == 12
        lines = result.err.splitlines()
        assert [line for line in lines if not line.startswith("#")] == [
            *(
                f"/!\\ Not able to scan file line: #OAR {text}."
                for text in ("-I", "--nope x", "-n", "-h", "--hold yes")
            ),
            "/!\\ Not able to scan file line: #OAR -k x.",
            "/!\\ Not able to scan file line: #OAR word.",
            f"[ERROR] 7 error(s) encountered while parsing the file {path}.",
        ]
        assert [line for line in lines if line.startswith("#")] == [
            "# -I is allowed on the command line only.",
            "# Unknown option: nope",
            "# Option n requires an argument",
            "# -h is allowed on the command line only.",
            "# Option hold does not take an argument",
            "# more than an option",
            "# not an option",
        ]
        assert result.out == ""
        assert site.is_empty()

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("--nme x", "# Unknown option: nme\n# Did you mean --name?\n"),
            ("-N 2", "# Unknown option: N\n# Here: -l nodes=NUMBER; -n NAME\n"),
            ("--time=1:00", "# Unknown option: time\n# Here: -l walltime=HOURS:MINUTES\n"),
            ("--array 1-9", "# Here: --array NUMBER; OAR_ARRAY_INDEX is from 1 to NUMBER in its jobs\n"),
            ("=", "# not an option\n"),
        ],
    )
    def test_a_line_that_is_not_understood_is_explained(
        self, site: LoginNode, script: Callable[[str], str], line: str, reason: str
    ) -> None:
        assert reason in site.oarsub("-S", script(f"#!/bin/sh\n#OAR {line}\n")).err

    @pytest.mark.parametrize(
        ("text", "warning"),
        [
            (
                "#!/bin/sh\n#SBATCH -N 1\n",
                "its #SBATCH lines are ignored: they are for another scheduler. Write #OAR lines.",
            ),
            (
                "#!/bin/sh\n#PBS -l nodes=1\n",
                "its #PBS lines are ignored: they are for another scheduler. Write #OAR lines.",
            ),
            ("#!/bin/sh\n#$ -cwd\n", "its #$ lines are ignored: they are for another scheduler. Write #OAR lines."),
            (
                "#!/bin/sh\n# OAR -l nodes=1\n",
                'line 2 is ignored: "# OAR -l nodes=1": a line with options begins with #OAR and a blank.'
                " Write: #OAR -l nodes=1",
            ),
            (
                "#!/bin/sh\n#OAR-l nodes=1\n",
                'line 2 is ignored: "#OAR-l nodes=1": a line with options begins with #OAR and a blank.'
                " Write: #OAR -l nodes=1",
            ),
            (
                "#!/bin/sh\r\n#OAR -n x\r\n",
                "its lines end with CR LF, and nodes cannot run it. Convert it: dos2unix {path}",
            ),
            (
                "#!/bin/sh\n  #OAR -n x\n#OAR -n y\n",
                'line 2 is ignored: "  #OAR -n x": a line with options begins with #OAR and a blank. Write: #OAR -n x',
            ),
            (
                " #!/bin/sh\n#OAR -n x\n",
                'line 2 is ignored: "#OAR -n x": there are blanks before #! in the first line.'
                " Begin the script with #!, and nothing before it",
            ),
            (
                "\ufeff#!/bin/sh\n#OAR -n x\n",
                'line 2 is ignored: "#OAR -n x": the script begins with a byte order mark.'
                " Begin the script with #!, and nothing before it",
            ),
            (
                "\n#!/bin/sh\n#OAR -n x\n",
                'line 3 is ignored: "#OAR -n x": the first line is empty.'
                " Begin the script with #!, and nothing before it",
            ),
            (
                "cd /tmp\n#OAR -n x\n",
                'line 2 is ignored: "#OAR -n x": the first line does not begin with #.'
                " Begin the script with #!, and nothing before it",
            ),
            ("#!/bin/sh\n##OAR -n x\n#OAR -n y\n### OAR -n z\n# #OAR -n z\n", ""),
            ("#!/bin/sh\n#SBATCH -N 1\n#OAR -n x\n", ""),
            ("#!/bin/sh\n# OAR - the scheduler\n#$HOME\n", ""),
        ],
    )
    def test_a_script_for_another_scheduler_is_noticed(
        self, site: LoginNode, script: Callable[[str], str], text: str, warning: str
    ) -> None:
        path = script(text)
        result = site.oarsub("-S", path)
        assert result.exit == 0
        said = [line.removeprefix(f"# Warning: {path}").lstrip(": ") for line in result.err.splitlines()]
        assert said == ([warning.replace("{path}", path)] if warning else [])

    def test_a_script_that_is_not_there_or_not_executable(self, site: LoginNode, tmp_path: Path) -> None:
        result = site.oarsub("-S", "/no/where a b")
        assert (result.exit, result.err) == (12, "[ERROR] Cannot open the file /no/where.\n")
        (tmp_path / "x").write_text("#!/bin/sh\n")
        result = site.oarsub("-S", tmp_path / "x")
        path = tmp_path / "x"
        assert (result.exit, result.err) == (
            0,
            f"# Warning: {path} is not executable: the job would end with exit code 126. Type: chmod +x {path}\n",
        )

    @settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
    @given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
    def test_whatever_stands_in_a_script_gets_an_answer(
        self, site: LoginNode, script: Callable[[str], str], text: str
    ) -> None:
        result = site.oarsub("--hold", "-S", script(f"#!/bin/sh\n#OAR {text}"))
        assert result.exit in {0, 1, 6, 7, 8, 12, 16, 17, 18, 243, 244, 248, 250, 254}
        assert "internal error" not in result.err


class TestKeys:
    def key(self, site: LoginNode, job: Job) -> tuple[str, str]:
        with site.database.begin() as tx:
            keys = tx.access.find_challenge(job.id)
        assert keys is not None
        assert keys.private_key is not None
        assert keys.public_key is not None
        return keys.private_key, keys.public_key

    def test_each_job_of_an_array_has_its_own(self, site: LoginNode) -> None:
        site.oarsub("-k", "--array", 3, "true")
        keys = [self.key(site, job) for job in site.jobs()]
        assert len(set(keys)) == 3
        assert all(public.startswith("ssh-ed25519 ") for _, public in keys)
        assert all("BEGIN OPENSSH PRIVATE KEY" in private for private, _ in keys)

    def test_a_key_is_exported_for_its_owner_alone(self, site: LoginNode, tmp_path: Path) -> None:
        (tmp_path / "old").write_text("old")
        result = site.oarsub("-k", "-v", "-e", tmp_path / "%jobid%.key", "true")
        (job,) = site.jobs()
        path = tmp_path / f"{job.id}.key"
        assert path.read_text() == self.key(site, job)[0]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (
            f"# Generate a job key...\n{WALLTIME}{TYPE}# Export job key to file: {path}\nOAR_JOB_ID={job.id}\n"
            == result.out
        )

    def test_a_key_is_imported_from_a_file_or_the_line_and_hidden(self, site: LoginNode, tmp_path: Path) -> None:
        private, public = self.key(site, site.submit("-k", "true"))
        execute_sql(site.database, "UPDATE jobs SET state = 'Terminated'")
        (tmp_path / "key").write_text(private)
        job = site.submit("-k", "-i", tmp_path / "key", "true")
        assert self.key(site, job)[1] == public
        result = site.oarsub("-k", "--import-job-key-inline", private, "true")
        assert result.err == f"/!\\ Another job is using the same ssh keys\n{VERIFY}"
        execute_sql(site.database, "UPDATE jobs SET state = 'Terminated'")
        job = site.submit("--ssh_private_key", private, "--ssh_public_key", f"{public} me@home", "true")
        assert job.initial_request == (
            f"oarsub --ssh_private_key [HIDDEN INLINE JOB KEY] --ssh_public_key {public} me@home true"
        )
        assert site.oarsub("-k", f"--import-job-key-inline={private}", "--array", 2, "x").exit == 8

    def test_the_environment_names_a_key(self, site: LoginNode, tmp_path: Path) -> None:
        private, public = self.key(site, site.submit("-k", "true"))
        execute_sql(site.database, "UPDATE jobs SET state = 'Terminated'")
        (tmp_path / "key").write_text(private)
        result = site.oarsub("-v", "true", environment={"OAR_JOB_KEY_FILE": str(tmp_path / "key")})
        assert result.exit == 0
        assert f"# Import job key from file: {tmp_path / 'key'}\n" in result.out
        assert self.key(site, site.jobs()[-1])[1] == public

    def test_a_site_may_give_every_job_a_key(self, site: LoginNode) -> None:
        site.config = site.config.replace(oarsub_force_job_key=True)
        assert self.key(site, site.submit("true"))


class TestCpusetName:
    def test_jobs_share_a_name_that_is_the_users_own(self, site: LoginNode) -> None:
        assert site.submit("--force_cpuset_name", "mine", "x").cpuset_name == "alice_mine"
        first = site.jobs()[0]
        result = site.oarsub("--force-cpuset-name", "mine", "x")
        assert result.err == f"# Warning: cpuset name alice_mine is used by job {first.id}.\n"

    def test_a_name_that_could_be_that_of_another_account_is_refused(
        self, site: LoginNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        accounts = {"alice_b": pwd.getpwnam("root")}
        monkeypatch.setattr(pwd, "getpwnam", accounts.__getitem__)
        result = site.oarsub("--force_cpuset_name", "b_x", "y")
        assert result == CommandResult(8, "", f'# Error: invalid cpuset name "b_x".\n{VERIFY}')
        assert site.is_empty()


class TestReservation:
    def test_it_is_submitted_with_its_date_and_waits(self, site: LoginNode) -> None:
        result = self.run(site, JobState.WAITING, "-r", "2031-03-04 10:00:00,12:00", "-v", "x")
        (job,) = site.jobs()
        assert result.exit == 0
        assert result.out.splitlines() == [
            "# Guessed reservation start: 2031-03-04 10:00:00 end: 2031-03-04 12:00:00 (computed walltime: 2:0:0).",
            "[ADMISSION RULE] Modify resource description with type constraints",
            f"OAR_JOB_ID={job.id}",
            "# Advance reservation request: waiting for validation...",
            "# Reservation valid --> OK",
        ]
        assert job.message == "R=1,W=2:0:0,J=R"
        assert job.info_type is not None
        assert re.fullmatch(r".+:\d+", job.info_type)

    def test_a_refusal_has_its_code_and_its_reason(self, site: LoginNode) -> None:
        result = self.run(site, JobState.TO_ERROR, "-r", "2031-03-04 10:00:00", "x")
        assert result.exit == 10
        assert result.out.splitlines()[-1] == "# Reservation not valid --> KO (no matching slot)"

    def test_one_without_command_is_entered_later(self, site: LoginNode) -> None:
        self.run(site, JobState.WAITING, "-r", "2031-03-04 10:00:00")
        assert site.jobs()[0].job_type is JobType.INTERACTIVE

    def test_the_walltime_of_the_request_wins(self, site: LoginNode) -> None:
        result = self.run(site, JobState.WAITING, "-r", "2031-03-04 10:00:00,12:00", "-l", "nodes=1,walltime=1", "x")
        assert result.err == (
            "# Warning: ignore reservation end date because walltime is set in resource description.\n"
        )
        assert site.jobs()[0].message == "R=2,W=1:0:0,J=R"

    def test_an_end_that_agrees_with_the_walltime_is_no_contradiction(self, site: LoginNode) -> None:
        window = "2031-03-04 10:00:00,2031-03-04 12:00:01"
        assert self.run(site, JobState.WAITING, "-r", window, "-l", "walltime=2", "x").err == ""

    def test_the_hook_hears_the_answer(self, site: LoginNode, tmp_path: Path) -> None:
        hook = tmp_path / "hook"
        hook.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said\nexit 3\n')
        hook.chmod(0o755)
        site.config = site.config.replace(advance_reservation_validation_hook_exec_file=str(hook))
        result = self.run(site, JobState.WAITING, "-r", "2031-03-04 10:00:00", "x")
        assert (result.exit, result.err) == (
            1,
            "# Error: an error occured in the advance reservation validation hook\n",
        )
        assert (tmp_path / "said").read_text() == f"{site.jobs()[0].id} 1\n"

    def test_a_hook_that_never_ends_is_given_up(
        self, site: LoginNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("oar.cli.oarsub_parts.reservation.HOOK_SECONDS", 0.1)
        hook = tmp_path / "hook"
        hook.write_text("#!/bin/sh\nexec sleep 1000\n")
        hook.chmod(0o755)
        site.config = site.config.replace(advance_reservation_validation_hook_exec_file=str(hook))
        result = self.run(site, JobState.WAITING, "-r", "2031-03-04 10:00:00", "x")
        assert (result.exit, result.err) == (
            1,
            "# Error: an error occured in the advance reservation validation hook\n",
        )

    def test_machine_formats_tell_by_the_exit_code_alone(self, site: LoginNode) -> None:
        result = self.run(site, JobState.TO_ERROR, "-J", "-r", "2031-03-04 10:00:00", "x")
        assert (result.exit, json.loads(result.out)) == (10, {"job_id": str(site.jobs()[0].id)})

    def test_an_outage_of_the_database_is_waited_out(
        self, database: Database, postgres: PostgreSQL, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job_id = add_job(database, JobState.TO_ACK_RESERVATION, reservation=Reservation.SCHEDULED)
        outage = postgres.outage(database.settings.name)

        def acknowledge() -> None:
            outage.__exit__(None, None, None)
            move_job(database, job_id, JobState.WAITING)

        calls = [(outage.__enter__, "GOOD RESERVATION"), (acknowledge, None)]

        def next_line(_listener: Listener, _seconds: float) -> str | None:
            act, line = calls.pop(0)
            act()
            return line

        monkeypatch.setattr(Listener, "next_line", next_line)
        with closing(Listener(["localhost"])) as listener:
            assert reservation.wait_for_answer(database, job_id, listener).is_granted
        assert calls == []

    def run(self, site: LoginNode, answer: JobState, *words: object) -> CommandResult:
        """Type oarsub while a scheduler and a server answer."""
        server = threading.Thread(target=self.answer, args=(site.database, answer))
        server.start()
        try:
            return site.oarsub(*words)
        finally:
            server.join()

    def answer(self, database: Database, answer: JobState) -> None:
        """Do what the scheduler does to the first reservation, and call the oarsub that waits."""
        job = None
        for _ in range(2000):
            with database.snapshot() as tx:
                found = tx.jobs.in_states([JobState.WAITING])
            if found:
                job = found[0]
                break
            threading.Event().wait(0.01)
        assert job is not None
        assert job.info_type is not None
        assert job.reservation is Reservation.TO_SCHEDULE
        with database.begin() as tx:
            tx.jobs.update(job.id, reservation=Reservation.SCHEDULED, scheduler_info="no matching slot")
            if answer is JobState.TO_ERROR:
                tx.execute("UPDATE jobs SET state = 'toError' WHERE job_id = %s", (job.id,))
        line = b"GOOD RESERVATION\n" if answer is JobState.WAITING else b"BAD JOB\n"
        with socket.create_connection(("127.0.0.1", int(job.info_type.rpartition(":")[2])), 5) as call:
            call.sendall(line)


class TestConnect:
    def test_what_cannot_be_connected_to(self, site: LoginNode) -> None:
        waiting = site.submit("x").id
        assert site.oarsub("-C", 99) == CommandResult(20, "", "# Error: job 99 does not exist.\n")
        assert site.oarsub("-C", "x") == CommandResult(20, "", '# Error: "x" is not the number of a job.\n')
        assert site.oarsub("-C", waiting) == CommandResult(
            20, "", f"# Error: job {waiting} is not running. Its current state is Waiting.\n"
        )
        assert site.oarsub("-C", waiting, user=BOB) == CommandResult(
            20, "", f"# Error: you are not the right user for job {waiting}. This job is owned by alice.\n"
        )
        noop = add_job(site.database, JobState.RUNNING, types=["noop"])
        assert site.oarsub("-C", noop) == CommandResult(
            17, "", "# Error: it is not possible to connect to a NOOP job.\n"
        )

    def test_without_number(self, site: LoginNode) -> None:
        assert site.oarsub("-C") == CommandResult(0, "No running jobs\n", "")
        first = add_job(site.database, JobState.RUNNING)
        second = add_job(site.database, JobState.RUNNING, name="fem")
        assert site.oarsub("-C") == CommandResult(
            0,
            f"You have several running jobs. Please provide a job id.\nRunning jobs are: {first}, {second} (fem)\n",
            "",
        )


class TestUsage:
    def test_tools_look_for_the_version(self, site: LoginNode) -> None:
        result = site.oarsub("--version")
        assert result.exit == 0
        assert re.fullmatch(r"OAR version: \d+\.\d+\.\d+ \(\w+\)\n", result.out)

    def test_without_command_the_usage_is_shown(self, site: LoginNode) -> None:
        assert site.oarsub().out.startswith("Usage: oarsub ")


@pytest.fixture(autouse=True)
def _here() -> Iterator[None]:
    """Leave the directory as it was."""
    here = os.getcwd()
    yield
    os.chdir(here)


@pytest.mark.parametrize(
    "words",
    [("-d", "/data/dir ", "-O", "out "), ("-d /data/dir ", "-Oout "), ("--directory=/data/dir ", "--stdout", "out ")],
)
def test_blanks_belong_to_the_names_of_files_and_to_nothing_else(site: LoginNode, words: Sequence[str]) -> None:
    job = site.submit(*words, "-l  walltime=1 ", "-n", " name ", "true")
    assert (job.launching_directory, job.stdout_file, job.name) == ("/data/dir ", "out ", "name")

"""A job once more: what the copy takes over, and when there is none."""

import re

import pytest

from oar.cli import oarsub
from oar.cli.common.command import CommandResult
from oar.lib.access.records import User
from oar.lib.base.errors import NoSuchJob, WrongState
from oar.lib.bus.messages import Tag, Wake
from oar.lib.db.database import Database
from oar.lib.jobs.records import Job, JobKeys
from oar.lib.jobs.states import JobState, JobType, Reservation
from oar.lib.submission import resubmission
from tests.builders import add_job, add_resources, execute_sql, move_job
from tests.frontend import ALICE, Frontend, add_rules

BOB = User("bob", 0)
ROOT = User("root", 0)


@pytest.fixture
def site(database: Database) -> Frontend:
    """A site with two nodes and the default rules."""
    add_resources(database)
    add_rules(database)
    return Frontend(database)


def submit(site: Frontend, *words: object) -> Job:
    assert site.type(oarsub.main, *words).exit == 0
    return site.jobs()[-1]


def end(site: Frontend, job: Job, state: JobState = JobState.ERROR) -> None:
    move_job(site.database, job.id, state)


def resubmit(site: Frontend, job_id: int, *words: object, user: User = ALICE) -> CommandResult:
    return site.type(oarsub.main, "--resubmit", job_id, *words, user=user)


def keys(site: Frontend, job: Job) -> JobKeys:
    with site.database.begin() as tx:
        found = tx.access.find_challenge(job.id)
    assert found is not None
    return found


class TestCopy:
    def test_it_is_the_same_job_with_another_number(self, site: Frontend) -> None:
        words = (
            "-n",
            "fem",
            "-t",
            "idempotent",
            "-p",
            "cpuset='0'",
            "--checkpoint",
            5,
            "--notify",
            "mail:a@b",
            "--project",
            "p",
        )
        old = submit(
            site,
            *words,
            "-l",
            "{true}/nodes=1+/resource_id=1,walltime=1",
            "-l",
            "nodes=1,walltime=2",
            "-O",
            "/o",
            "x\ny",
        )
        end(site, old)
        result = resubmit(site, old.id)
        new = site.jobs()[-1]
        assert result == CommandResult(0, f"OAR_JOB_ID={new.id}\n", "")
        for name in (
            *("array_id", "array_index", "array_limit", "name", "user", "project", "queue", "job_type", "reservation"),
            "message",
            *("command", "initial_request", "info_type", "properties", "launching_directory", "checkpoint"),
            *("checkpoint_signal", "stdout_file", "stderr_file", "notify", "env", "file_id"),
        ):
            assert getattr(new, name) == getattr(old, name), name
        assert (new.state, new.resubmit_job_id, new.exit_code) == (JobState.WAITING, old.id, None)
        assert (new.start_time, new.stop_time, new.assigned_moldable) == (0, 0, 0)
        assert new.cpuset_name == f"alice_{new.id}"
        with site.database.begin() as tx:
            types, moldables = tx.jobs.types([old.id, new.id]), tx.new_jobs.moldables_of_jobs([old.id, new.id])
            assert types[old.id] == types[new.id] == ("idempotent",)
            asked = {each: [(one.walltime, one.groups) for one in moldables[each]] for each in (old.id, new.id)}
            assert asked[old.id] == asked[new.id]
            assert [each.state for each in tx.jobs.state_changes([new.id])[new.id]] == [JobState.WAITING]
        assert site.told[-1] == Wake(Tag.QSUB)

    def test_it_has_a_challenge_of_its_own_and_the_keys(self, site: Frontend) -> None:
        old = submit(site, "-k", "x")
        before = keys(site, old)
        end(site, old)
        resubmit(site, old.id)
        after = keys(site, site.jobs()[-1])
        assert (after.private_key, after.public_key) == (before.private_key, before.public_key)
        assert re.fullmatch(r"[0-9]{39,}", after.challenge)
        assert after.challenge != before.challenge

    def test_those_that_depend_on_the_job_follow(self, site: Frontend) -> None:
        old = submit(site, "x")
        dependant = submit(site, "-a", f"{old.id}:ok", "y")
        end(site, old)
        resubmit(site, old.id)
        with site.database.begin() as tx:
            (dependency,) = tx.jobs.dependencies([dependant.id])[dependant.id]
        assert (dependency.required, dependency.condition) == (site.jobs()[-1].id, "ok")

    def test_a_cpuset_with_a_name_stays(self, site: Frontend) -> None:
        old = submit(site, "--force_cpuset_name", "mine", "x")
        end(site, old)
        resubmit(site, old.id)
        assert site.jobs()[-1].cpuset_name == "alice_mine"

    def test_rules_are_not_run_again(self, site: Frontend) -> None:
        old = submit(site, "x")
        end(site, old)
        add_rules(site.database, "reject('no')", defaults=False)
        assert resubmit(site, old.id).exit == 0

    def test_what_is_said_with_v_and_in_json(self, site: Frontend) -> None:
        old = submit(site, "x")
        end(site, old)
        result = resubmit(site, old.id, "-v")
        assert result.out == f"# Resubmitting job {old.id}...# DONE\nOAR_JOB_ID={site.jobs()[-1].id}\n"
        result = resubmit(site, old.id, "-J")
        assert result.out == f'{{\n   "job_id" : "{site.jobs()[-1].id}"\n}}\n'


class TestRefusal:
    def test_unknown_jobs(self, site: Frontend) -> None:
        assert resubmit(site, 999) == CommandResult(4, "", "# Error: job 999 does not exist.\n")

    def test_jobs_that_have_not_ended(self, site: Frontend) -> None:
        job = submit(site, "x")
        assert resubmit(site, job.id) == CommandResult(
            4,
            "",
            "# Error: the job must be in Error or Terminated state."
            f" Job {job.id} is Waiting. Wait for its end: oarstat -j {job.id}\n",
        )

    def test_jobs_of_others(self, site: Frontend) -> None:
        job = submit(site, "x")
        end(site, job)
        assert resubmit(site, job.id, user=BOB) == CommandResult(
            4, "", f"# Error: you are not the right user for job {job.id}. This job is owned by alice.\n"
        )
        assert resubmit(site, job.id, user=ROOT).exit == 0
        assert site.jobs()[-1].user == "alice"

    @pytest.mark.parametrize("columns", [{"job_type": JobType.INTERACTIVE}, {"reservation": Reservation.SCHEDULED}])
    def test_interactive_jobs_and_reservations(self, site: Frontend, columns: dict[str, object]) -> None:
        job_id = add_job(site.database, JobState.ERROR, **columns)  # type: ignore[arg-type]
        assert resubmit(site, job_id) == CommandResult(
            4, "", "# Error: an interactive job or a reservation cannot be resubmitted.\n"
        )

    def test_a_key_that_another_job_uses_now(self, site: Frontend) -> None:
        old = submit(site, "-k", "x")
        end(site, old)
        assert resubmit(site, old.id).exit == 0
        count = len(site.jobs())
        assert resubmit(site, old.id) == CommandResult(
            4, "", "# Error: another active job is using the same ssh keys.\n"
        )
        assert len(site.jobs()) == count


class TestAutomatic:
    def test_at_most_once_whoever_asks(self, site: Frontend) -> None:
        old = submit(site, "x")
        with site.database.begin() as tx:
            new = resubmission.copy(tx, old.id, automatically=True)
            assert tx.new_jobs.resubmitted_copies([old.id]) == {old.id: new}
            assert tx.new_jobs.chain_length(new) == 1
        with pytest.raises(WrongState, match="was resubmitted before"), site.database.begin() as tx:
            resubmission.copy(tx, old.id, automatically=True)
        assert len(site.jobs()) == 2

    def test_a_job_that_is_not_there(self, site: Frontend) -> None:
        with pytest.raises(NoSuchJob), site.database.begin() as tx:
            resubmission.copy(tx, 999, automatically=True)


class TestRestarts:
    @pytest.mark.parametrize("words", [(), ("-t", "idempotent")])
    def test_an_idempotent_job_may_be_run_again_so_often(self, site: Frontend, words: tuple[str, ...]) -> None:
        job = submit(site, "--max-restarts", 2, *words, "-t", "besteffort", "true")
        with site.database.begin() as tx:
            assert tx.jobs.types([job.id])[job.id] == ("besteffort", "idempotent=2")
        assert job.message.endswith("T=besteffort|idempotent")

    @pytest.mark.parametrize("number", ["-1", "x", ""])
    def test_numbers_that_cannot_be(self, site: Frontend, number: str) -> None:
        wrong = f'Value "{number}" invalid for option max-restarts (number expected)\n'
        assert site.type(oarsub.main, "--max-restarts", number, "true") == CommandResult(1, "", wrong)
        assert site.jobs() == []


def test_a_job_of_a_removed_queue_is_not_resubmitted(site: Frontend) -> None:
    old = submit(site, "x")
    end(site, old)
    with site.database.begin() as tx:
        tx.queues.delete("default")
    result = resubmit(site, old.id)
    assert (result.exit, result.out) == (4, "")
    assert "queue 'default' does not exist" in result.err


class TestSeveral:
    @pytest.fixture
    def array(self, site: Frontend) -> list[Job]:
        """An array of four jobs: in Error, ended with exit code 3, ended well, waiting."""
        assert site.type(oarsub.main, "--array", 4, "x").exit == 0
        jobs = site.jobs()
        for job, state, exit_code in zip(
            jobs, (JobState.ERROR, JobState.TERMINATED, JobState.TERMINATED), (None, 3 << 8, 0), strict=False
        ):
            end_with(site, job, state, exit_code)
        return site.jobs()

    @pytest.mark.parametrize("words", [["{0}", "{1}", "{2}"], ["{0},{1}", "{2}"], ["{0}", "--resubmit", "{1}", "{2}"]])
    def test_each_id_that_is_given(self, site: Frontend, array: list[Job], words: list[str]) -> None:
        ids = [job.id for job in array]
        result = resubmit(site, *[word.format(*ids) for word in words])  # type: ignore[arg-type]
        copies = site.jobs()[4:]
        assert result == CommandResult(0, "".join(f"OAR_JOB_ID={copy.id}\n" for copy in copies), "")
        assert [copy.resubmit_job_id for copy in copies] == ids[:3]

    def test_those_that_cannot_be_are_named_and_the_others_are_done(self, site: Frontend, array: list[Job]) -> None:
        result = resubmit(site, array[0].id, array[3].id, 10**12)
        assert (result.exit, result.out) == (4, f"OAR_JOB_ID={site.jobs()[-1].id}\n")
        assert result.err == (
            f"# Error: job {array[3].id}: the job must be in Error or Terminated state."
            f" Job {array[3].id} is Waiting. Wait for its end: oarstat -j {array[3].id}\n"
            "# Error: job 1000000000000 does not exist.\n"
        )

    def test_only_the_failed_elements_of_an_array_and_each_once(self, site: Frontend, array: list[Job]) -> None:
        words = ("--array", array[0].id, "--state", "failed")
        assert site.type(oarsub.main, "--resubmit", *words).exit == 0
        assert [copy.resubmit_job_id for copy in site.jobs()[4:]] == [array[0].id, array[1].id]
        again = site.type(oarsub.main, "--resubmit", *words)
        assert (again.exit, again.out) == (4, "")
        assert "no job to resubmit" in again.err

    @pytest.mark.parametrize(
        ("words", "indexes"),
        [
            (["--array", "{0}"], [0, 1, 2]),
            (["--array", "{0}", "--state", "E"], [0]),
            (["--array", "{0}", "--state", "E", "--state", "T"], [0, 1, 2]),
            (["--sql", "exit_code > 0"], [1]),
            (["{0}", "{2}", "--state", "Terminated"], [2]),
            (["--array", "{0}", "--sql", "exit_code = 0"], [2]),
        ],
    )
    def test_selections(self, site: Frontend, array: list[Job], words: list[str], indexes: list[int]) -> None:
        result = site.type(oarsub.main, "--resubmit", *[word.format(*(job.id for job in array)) for word in words])
        assert (result.exit, result.err) == (0, "")
        assert [copy.resubmit_job_id for copy in site.jobs()[4:]] == [array[index].id for index in indexes]

    def test_a_condition_selects_jobs_of_the_user_only(self, site: Frontend, array: list[Job]) -> None:
        result = site.type(oarsub.main, "--resubmit", "--sql", "exit_code > 0", user=BOB)
        assert (result.exit, len(site.jobs())) == (4, 4)

    @pytest.mark.parametrize(
        ("words", "text"),
        [
            (["--resubmit"], "--resubmit requires jobs: use job ids"),
            (["--resubmit", "--state", "E"], "--resubmit requires jobs: use job ids"),
            (["--resubmit", "12", "abc"], '"abc" is not a valid job identifier'),
            (["--resubmit", "12", "./job.sh"], '"./job.sh" is not a valid job identifier'),
            (["--resubmit", "--array", "999"], '"999" is not a valid array job'),
            (["--resubmit", "12", "--state", "R"], 'unknown state "R". Write T (Terminated), E (Error) or failed.'),
        ],
    )
    def test_what_cannot_be_selected(self, site: Frontend, words: list[str], text: str) -> None:
        result = site.type(oarsub.main, *words)
        assert (result.exit, result.out) == (4, "")
        assert text in result.err

    def test_a_selection_without_resubmit(self, site: Frontend) -> None:
        result = site.type(oarsub.main, "--state", "E", "x")
        assert (result.exit, len(site.jobs())) == (1, 0)
        assert "use them with it" in result.err

    def test_ids_for_programs(self, site: Frontend, array: list[Job]) -> None:
        result = resubmit(site, array[0].id, array[1].id, "--parsable")
        assert result == CommandResult(0, "".join(f"{job.id}\n" for job in site.jobs()[4:]), "")


def end_with(site: Frontend, job: Job, state: JobState, exit_code: int | None) -> None:
    end(site, job)
    execute_sql(site.database, "UPDATE jobs SET state = %s, exit_code = %s WHERE job_id = %s", state, exit_code, job.id)

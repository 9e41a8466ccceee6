"""oarsub --ar: jobs in an advance reservation, and what keeps others out of it."""

import json

import node_base
import pytest

from oar.cli import oaralter, oardel, oarhold, oarnodes, oarresume, oarstat, oarsub, oarwalltime
from oar.cli.common.command import CommandResult
from oar.lib.access.records import User
from oar.lib.base.errors import WrongState
from oar.lib.base.times import format_date
from oar.lib.config.files import Config
from oar.lib.jobs import lifecycle
from oar.lib.jobs.records import Job, JobSpec
from oar.lib.jobs.states import JobState, JobType, Reservation
from oar.lib.reservations.records import AccessEntry
from oar.lib.reservations.states import ReservationState
from oar.lib.submission import resubmission, submit
from oar.lib.submission.checks import BadSubmission
from oar.lib.submission.preparation import Proposal
from oar.lib.submission.resource_request import parse_request
from oar.modules.runner.actions import job_data
from tests.builders import move_job
from tests.db.reservation_site import ALICE, HOUR, NOW, Site
from tests.frontend import ALICE as TYPIST
from tests.frontend import LoginNode, add_rules

VERIFY = "# Error: please verify your job submission syntax.\n"
ROOT = User("root", 0)
BOB = User("bob", 0)  #: with the rights of whoever runs the tests


@pytest.fixture
def number(login: LoginNode, site: Site) -> int:
    """An advance reservation of one node for an hour, which begins in 100 s."""
    made = site.ask("/network_address=1", NOW + 100, NOW + 100 + HOUR, name="course")
    site.round()
    assert site.state(made) is ReservationState.WAITING
    return made


def refusal(login: LoginNode, *words: object, user: User = TYPIST) -> str:
    """Return why a submission is refused; nothing is stored."""
    before = len(login.jobs()), login.count("reservation_jobs")
    result = login.oarsub(*words, user=user)
    assert (result.exit, result.out) == (8, "")
    assert (len(login.jobs()), login.count("reservation_jobs")) == before
    assert result.err.endswith(VERIFY)
    return result.err.removesuffix(VERIFY).removeprefix("# Error: ").rstrip("\n")


def inside(site: Site, job: Job) -> tuple[tuple[str, ...], int]:
    """Return the types of a job, and the id of the reservation that it is in."""
    with site.database.begin() as tx:
        return tx.jobs.types([job.id]).get(job.id, ()), tx.reservations.of_jobs([job.id]).get(job.id, 0)


def walltimes(site: Site, job: Job) -> list[int]:
    with site.database.begin() as tx:
        return [moldable.walltime for moldable in tx.new_jobs.moldables_of_jobs([job.id])[job.id]]


class TestEntry:
    def test_a_job_is_in_the_frame_and_in_the_table(self, site: Site, login: LoginNode, number: int) -> None:
        job = login.submit("--ar", number, "-l", "/resource_id=1,walltime=0:10", "true")
        assert inside(site, job) == ((f"inner={site.get(number).frame_id}",), number)
        assert (job.queue, job.initial_request) == (
            "default",
            f"oarsub --ar {number} -l /resource_id=1,walltime=0:10 true",
        )
        site.round(NOW + 1)
        assert site.job(job.id) is JobState.WAITING
        site.round(NOW + 100)
        site.round(NOW + 100)
        assert site.job(job.id) is JobState.TO_LAUNCH

    @pytest.mark.parametrize("option", ["--ar", "-ar", "--advance-reservation"])
    def test_a_name_means_the_live_one_of_it(self, site: Site, login: LoginNode, number: int, option: str) -> None:
        assert inside(site, login.submit(option, "course", "-l", "walltime=0:1", "true"))[1] == number

    def test_of_several_of_a_name_the_running_one_then_the_next(
        self, site: Site, login: LoginNode, number: int
    ) -> None:
        earlier = site.ask("/resource_id=1", NOW + 50, NOW + HOUR, name="course")
        foreign = site.ask("/resource_id=1", NOW, NOW + HOUR, name="course", owner="bob")
        site.round()
        assert inside(site, login.submit("--ar", "course", "-l", "walltime=0:1", "x"))[1] == earlier
        result = login.oarsub("--ar", "course", "-l", "walltime=0:1", "x", user=BOB)
        assert result.exit == 0
        assert inside(site, login.jobs()[-1])[1] == foreign

    def test_without_walltime_it_gets_what_is_left(self, site: Site, login: LoginNode, number: int) -> None:
        result = login.oarsub("--ar", number, "true")
        assert result.out.startswith(f"[AR {number}] Set walltime to 0:59:54.\n")  # and nothing of the rules' default
        assert walltimes(site, login.jobs()[-1]) == [HOUR - 6]
        site.round(NOW + 1000)
        result = login.oarsub("--ar", number, "-l", "/resource_id=1", "-l", "/resource_id=2,walltime=0:5", "true")
        assert f"[AR {number}] Set walltime to 0:44:54.\n" in result.out
        assert walltimes(site, login.jobs()[-1]) == [2694, 300]

    def test_rules_know_that_it_is_for_one_and_leave_it_there(self, site: Site, login: LoginNode, number: int) -> None:
        add_rules(site.database, "warn(advance_reservation)\nadvance_reservation = ''", defaults=False)
        result = login.oarsub("--ar", "course", "-l", "walltime=0:1", "true")
        assert "course" in result.err
        assert "an admission rule changed 'advance_reservation', which is ignored" in result.err
        assert inside(site, login.jobs()[-1])[1] == number

    def test_arrays_interactive_reserved_and_dependent_jobs(self, site: Site, login: LoginNode, number: int) -> None:
        frame = site.get(number).frame_id
        assert login.oarsub("--ar", number, "--array", 3, "-l", "walltime=0:1", "x").exit == 0
        assert login.count("reservation_jobs") == 3
        first = login.jobs()[-1]
        job = login.submit("--ar", number, "-l", "walltime=0:1", "-a", first.id, "-t", "container", "x")
        assert inside(site, job) == (("container", f"inner={frame}"), number)

    def test_a_script_names_it(self, site: Site, login: LoginNode, number: int, tmp_path: object) -> None:
        script = f"{tmp_path}/run.sh"
        with open(script, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n#OAR --ar {number}\n#OAR -l walltime=0:1\n")
        assert inside(site, login.submit("-S", script))[1] == number

    def test_a_forbidden_list_entry_holds_for_the_project_that_rules_leave(
        self, site: Site, login: LoginNode, number: int
    ) -> None:
        with site.database.begin() as tx:
            tx.reservations.set_access(number, [AccessEntry("%bio")])
        inside_words = ("--ar", number, "-l", "walltime=0:1")
        job = login.submit(*inside_words, "--project", "bio", "x")
        assert job.project == "bio"
        add_rules(site.database, 'project = "chem"', defaults=False)
        denied = f"you are not allowed to use the advance reservation {number}."
        assert refusal(login, *inside_words, "--project", "bio", "x") == denied


class TestRefusals:
    @pytest.mark.parametrize("text", ["0", "x y", "10000000", "-3", "1bad", "", "a" * 129, "é", "1;2", "$(x)"])
    def test_syntax(self, login: LoginNode, text: str) -> None:
        shown = text[:60]
        assert refusal(login, f"--ar={text}", "true") == f'invalid advance reservation "{shown}".'

    def test_unknown_asked_refused_and_ended_ones(self, site: Site, login: LoginNode) -> None:
        assert refusal(login, "--ar", 999, "x") == "the advance reservation 999 does not exist."
        assert refusal(login, "--ar", "nosuch", "x") == "the advance reservation nosuch does not exist."
        ended = site.ask("/resource_id=1", NOW + 10, NOW + HOUR, name="ended")
        site.round()
        site.delete(ALICE, ended)
        assert refusal(login, "--ar", "ended", "x") == "the advance reservation ended has ended."
        asked = site.ask("/resource_id=1", NOW + 10, NOW + HOUR, name="asked")
        assert refusal(login, "--ar", "asked", "x") == f"the advance reservation {asked} is not granted yet."
        site.round()
        assert refusal(login, "--ar", asked, "-l", "walltime=9", "x").startswith("walltime 9:0:0 is longer than")
        site.delete(ALICE, asked)
        assert refusal(login, "--ar", asked, "x") == f"the advance reservation {asked} has ended."
        refused = site.ask("/resource_id=5", NOW + 10, NOW + HOUR)
        site.round()
        assert refusal(login, "--ar", refused, "x") == f"the advance reservation {refused} does not exist."

    def test_somebody_who_is_not_in_the_access_list(self, login: LoginNode, number: int) -> None:
        denied = f"you are not allowed to use the advance reservation {number}."
        assert refusal(login, "--ar", number, "x", user=BOB) == denied
        assert refusal(login, "--ar", "course", "x", user=BOB) == denied

    def test_walltimes_that_are_too_long(self, site: Site, login: LoginNode, number: int) -> None:
        text = f"walltime 2:0:0 is longer than the advance reservation {number} allows (0:59:54)."
        assert refusal(login, "--ar", number, "-l", "walltime=2", "x") == text
        assert login.oarsub("--ar", number, "-l", "walltime=0:59:54", "x").exit == 0
        site.round(NOW + 1000)
        text = f"walltime 0:50:0 exceeds the remaining time of the advance reservation {number} (0:44:54)."
        assert refusal(login, "--ar", number, "-l", "walltime=0:50", "x") == text

    def test_requests_that_it_cannot_hold(self, login: LoginNode, number: int) -> None:
        short = f"the advance reservation {number} cannot hold -l"
        assert refusal(login, "--ar", number, "-l", "/resource_id=3,walltime=0:1", "x").startswith(
            f"{short} /resource_id=3: 2 resources can be used, 3 asked."
        )
        assert "1 whole node can be used, 2 asked" in refusal(login, "--ar", number, "-l", "/nodes=2,walltime=0:1", "x")
        assert refusal(login, "--ar", number, "-l", "/nodes=ALL,walltime=0:1", "x") == (
            f"{short} /nodes=ALL: 1 whole node can be used,"
            " ALL asked, which means the whole cluster: use BEST for the resources that are available."
        )
        refused = refusal(login, "--ar", number, "-p", "network_address='node-2'", "-l", "walltime=0:1", "x")
        assert refused == f"{short} /resource_id=1: no resource matches \"network_address='node-2'\", 1 asked."
        several = ("-l", "/resource_id=1,walltime=0:1", "-l", "/resource_id=3,walltime=0:1")
        assert refusal(login, "--ar", number, *several, "x").startswith(short)
        assert refusal(login, "--ar", number, "-l", "/resource_id=2+/resource_id=1,walltime=0:1", "x").startswith(short)

    def test_with_verify_n_it_is_accepted_and_waits(self, site: Site, login: LoginNode, number: int) -> None:
        words = ("--ar", number, "--verify", "n")
        ids = [
            login.submit(*words, "-l", request, "x").id
            for request in ("walltime=2", "/resource_id=3,walltime=0:1", "/nodes=2,walltime=0:1")
        ]
        site.round(NOW + 100)
        site.round(NOW + 100)
        assert {site.job(each) for each in ids} == {JobState.WAITING}
        assert refusal(login, *words[:2], "--verify", "e", "-l", "walltime=2", "x").startswith("walltime")

    def test_the_frame_is_entered_by_no_other_way(self, site: Site, login: LoginNode, number: int) -> None:
        frame = site.get(number).frame_id
        text = f"job {frame} is the frame of the advance reservation {number}, use --ar {number}."
        assert refusal(login, "-t", f"inner={frame}", "-l", "walltime=0:1", "x") == text
        assert refusal(login, "-t", f"inner={frame}", "-l", "walltime=0:1", "x", user=BOB) == text
        add_rules(site.database, f'types.append("inner={frame}")', defaults=False)
        assert refusal(login, "-l", "walltime=0:1", "x") == text

    @pytest.mark.parametrize("name", ["container=99999", "allowed=ar99", "placeholder=ar99", "set_placeholder=ar99"])
    def test_no_name_is_taken_that_a_later_reservation_will_have(self, login: LoginNode, name: str) -> None:
        assert "reservation" in refusal(login, "-t", name, "-l", "/resource_id=1,walltime=0:1", "x")

    def test_one_container_is_enough(self, login: LoginNode, number: int) -> None:
        assert refusal(login, "--ar", number, "-t", "inner=box", "x").startswith("a job cannot be in an advance reserv")

    def test_a_reservation_inside_lies_in_its_window(self, site: Site, login: LoginNode, number: int) -> None:
        def reserve(start: int) -> int:
            proposal = Proposal(
                JobSpec("alice", "true", checkpoint_signal=12),
                JobType.PASSIVE,
                (parse_request("/resource_id=1,walltime=0:10"),),
                start=start,
                advance_reservation=str(number),
            )
            return submit.submit(login.database, login.config, proposal).ids[0]

        job_id = reserve(NOW + 200)
        site.round()
        with site.database.begin() as tx:
            assert tx.jobs.get(job_id).reservation is Reservation.SCHEDULED
        with pytest.raises(BadSubmission, match="exceeds the remaining time"):
            reserve(NOW + HOUR - 100)
        for date in (NOW + 50, NOW + HOUR + 94, 2 * NOW):
            with pytest.raises(BadSubmission) as refused:
                reserve(date)
            first, last = format_date(NOW + 100), format_date(NOW + HOUR + 94)
            assert str(refused.value) == (
                f"{format_date(date)} is not a start for a job in the advance reservation {number}:"
                f" use a date from {first} to {last}."
            )


class TestAlteration:
    def alter(self, login: LoginNode, *words: object, user: User = TYPIST) -> CommandResult:
        return login.type(oaralter.main, *words, user=user)

    def test_a_waiting_job_goes_in_moves_on_and_comes_out(self, site: Site, login: LoginNode, number: int) -> None:
        other = site.ask("/network_address=1", NOW + 100, NOW + 100 + HOUR, name="other")
        site.round()
        job = login.submit("-l", "/resource_id=1,walltime=0:10", "x")
        done = CommandResult(0, f"[{job.id}] The job was altered.\n", "")
        for place, expected in (("course", number), (other, other), (other, other)):
            assert self.alter(login, "--ar", place, job.id) == done
            assert inside(site, job) == ((f"inner={site.get(expected).frame_id}",), expected)
        assert self.alter(login, "-n", "name", job.id) == done
        assert inside(site, job) == ((f"inner={site.get(other).frame_id}",), other)
        assert self.alter(login, "--ar", "none", job.id) == done
        assert inside(site, job) == ((), 0)

    def test_the_checks_are_those_of_a_submission(self, site: Site, login: LoginNode, number: int) -> None:
        job = login.submit("-l", "/resource_id=3,walltime=0:10", "x")
        begin = f"/!\\ Cannot alter {job.id}: "
        for place, text in (
            ("x y", 'invalid advance reservation "x y".'),
            ("999", "the advance reservation 999 does not exist."),
            (number, f"the advance reservation {number} cannot hold -l"),
        ):
            result = self.alter(login, "--ar", place, job.id)
            assert (result.exit, result.err[: len(begin + text)]) == (1, begin + text)
        assert inside(site, job) == ((), 0)
        small = login.submit("--ar", number, "-l", "/resource_id=1,walltime=0:10", "x")
        assert "longer than" in self.alter(login, "-l", "walltime=2", small.id).err
        assert walltimes(site, small) == [600]
        patient = login.submit("--ar", number, "--verify", "n", "-l", "walltime=2", "x")
        assert self.alter(login, "-n", "patient", patient.id).exit == 0

    def test_a_running_job_stays_where_it_is(self, site: Site, login: LoginNode, number: int) -> None:
        job = login.submit("--ar", number, "-l", "/resource_id=1,walltime=0:10", "x")
        site.round(NOW + 100)
        site.round(NOW + 100)
        result = self.alter(login, "--ar", "none", job.id)
        text = "modifying the advance reservation is denied, the job is already running."
        assert result == CommandResult(1, "", f"/!\\ Cannot alter {job.id} ; {text}\n")
        assert inside(site, job)[1] == number


class TestCopies:
    def test_a_copy_stays_in_the_reservation_while_it_lasts(self, site: Site, login: LoginNode, number: int) -> None:
        job = login.submit("--ar", number, "-l", "/resource_id=1,walltime=0:10", "x")
        move_job(site.database, job.id, JobState.ERROR)
        assert login.oarsub("--resubmit", job.id).exit == 0
        copy = login.jobs()[-1]
        assert inside(site, copy) == ((f"inner={site.get(number).frame_id}",), number)
        site.round(NOW + HOUR - 400)
        result = login.oarsub("--resubmit", job.id)
        assert (result.exit, result.err) == (
            4,
            f"# Error: the advance reservation {number} does not last long enough.\n",
        )
        site.delete(ALICE, number)
        result = login.oarsub("--resubmit", job.id)
        assert (result.exit, result.err) == (4, f"# Error: the advance reservation {number} has ended.\n")

    def test_no_copy_enters_for_somebody_who_may_not_use_it_any_more(
        self, site: Site, login: LoginNode, number: int
    ) -> None:
        job = login.submit("--ar", number, "-l", "/resource_id=1,walltime=0:1", "true")
        with site.database.begin() as tx:
            lifecycle.move(tx, job.id, JobState.ERROR)
            tx.reservations.set_access(number, [AccessEntry("bob")])
        with site.database.begin() as tx, pytest.raises(WrongState, match="not allowed to use"):
            resubmission.copy(tx, job.id)

    def test_an_automatic_copy_stays_in_the_reservation_and_none_is_made_without_it(
        self, site: Site, login: LoginNode, number: int
    ) -> None:
        first, second = (login.submit("--ar", number, "-l", "/resource_id=1,walltime=0:10", "x") for _ in range(2))
        with site.database.begin() as tx:
            copy = resubmission.copy(tx, first.id, automatically=True)
        with site.database.begin() as tx:
            assert tx.reservations.of_jobs([copy]) == {copy: number}
        site.delete(ALICE, number)
        with site.database.begin() as tx, pytest.raises(WrongState, match=f"reservation {number} has ended"):
            resubmission.copy(tx, second.id, automatically=True)
        assert login.count("auto_resubmissions") == 1

    def test_what_a_job_is_told_of_its_reservation(self, site: Site, login: LoginNode, number: int) -> None:
        job = login.submit("--ar", number, "-l", "/resource_id=1,walltime=0:10", "x")
        with site.database.begin() as tx:
            data = job_data.read(tx, job.id)
        assert data is not None
        sent = job_data.oarexec_data(data, login.config, 1, init=False)
        variables = node_base.job_variables(sent, "x", "")
        assert {name: text for name, text in variables.items() if name.startswith("OAR_AR_")} == {
            "OAR_AR_ID": str(number),
            "OAR_AR_NAME": "course",
            "OAR_AR_END": str(NOW + 100 + HOUR),
        }

    def test_the_head_of_a_job_is_a_node_of_the_master_queue_list(self, site: Site, login: LoginNode) -> None:
        request = "{network_address = 'node-2'}/resource_id=1+/resource_id=3"
        number = site.ask(request, NOW, NOW + HOUR, master_queue_list="default@node-2")
        site.round()
        wide = login.submit("--ar", number, "-l", "/network_address=2/resource_id=1,walltime=0:10", "x")
        narrow = login.submit(
            "--ar", number, "-l", "/resource_id=1,walltime=0:10", "-p", "network_address='node-1'", "x"
        )
        site.round(NOW + 1)

        def data_of(job: Job) -> job_data.JobData:
            with site.database.begin() as tx:
                data = job_data.read(tx, job.id)
            assert data is not None
            return data

        assert data_of(wide).hosts == ("node-2", "node-1")
        assert data_of(narrow).hosts == ("node-1",)
        assert data_of(wide).exec_host(login.config) == "node-2"
        sent = job_data.oarexec_data(data_of(wide), login.config, 1, init=False)
        assert node_base.node_file(sent) == "node-2\nnode-1\n"
        with site.database.begin() as tx:
            tx.job_runs.claim(wide.id, "node-1")
        assert data_of(wide).hosts == ("node-1", "node-2")  # a job that was begun keeps its head


class TestFrames:
    """A frame is nobody's job: whatever acts on jobs names the advance reservation instead."""

    def test_it_is_refused_with_the_code_of_an_unsuitable_job(self, site: Site, login: LoginNode, number: int) -> None:
        frame = site.get(number).frame_id
        site.round(NOW + 100)
        text = f"This job is the frame of the advance reservation {number}: use qralter."
        login.config = Config(walltime_change_enabled=True, users_allowed_hold_resume=True)
        for command, words, code in (
            (oarhold.main, (frame,), 1),
            (oarhold.main, ("-r", frame), 1),
            (oarresume.main, (frame,), 1),
            (oaralter.main, ("-n", "x", frame), 1),
            (oarsub.main, ("-C", frame), 20),
            (oarsub.main, ("--resubmit", frame), 4),
            (oarsub.main, ("-a", frame, "x"), 8),
            (oardel.main, ("-s", "USR1", frame), 5),
            (oardel.main, ("-c", frame), 5),
        ):
            result = login.type(command, *words)
            assert (result.exit, text in result.err) == (code, True), (words, result)
            other = login.type(command, *words, user=BOB)
            assert other.exit != 0
        for words in (("-b", frame), ("--force-terminate-finishing-job", frame)):
            result = login.type(oardel.main, *words, user=ROOT)
            assert (result.exit != 0, text in result.err) == (True, True)
        result = login.type(oarwalltime.main, frame, "+1")
        assert (result.exit, result.out) == (3, f"Forbidden: {text}\n")
        assert site.state(number) is ReservationState.RUNNING
        assert site.job(frame) is JobState.RUNNING

    def test_no_job_of_it_is_meant_by_all_my_jobs(self, site: Site, login: LoginNode, number: int) -> None:
        assert login.type(oardel.main, "--all").err == "# Warning: no such job of alice.\n"
        assert site.state(number) is ReservationState.WAITING

    def test_its_deletion_is_that_of_the_reservation(self, site: Site, login: LoginNode, number: int) -> None:
        frame = site.get(number).frame_id
        job = login.submit("--ar", number, "-l", "walltime=0:1", "x")
        result = login.type(oardel.main, frame, user=BOB)
        assert (result.exit, result.err) == (1, f"Cannot frag {frame} ; You are not the right user.\n")
        result = login.type(oardel.main, frame)
        assert (result.exit, f"Deleting the job = {frame} ...REGISTERED." in result.out) == (0, True)
        text = f"job {frame} is the frame of the advance reservation {number}, which is deleted."
        assert result.err == f"# Warning: {text}\n"
        assert (site.state(number), site.get(number).deleted_by) == (ReservationState.DELETED, "alice")
        with site.database.begin() as tx:
            assert tx.job_requests.jobs_to_kill([job.id, frame]) == {job.id}

    def test_lists_leave_it_out_and_records_name_the_reservation(
        self, site: Site, login: LoginNode, number: int
    ) -> None:
        frame = site.get(number).frame_id
        inside = login.submit("--ar", number, "-l", "walltime=0:1", "x").id
        outside = login.submit("-l", "walltime=0:1", "x").id

        def ids(*words: object) -> list[int]:
            result = login.type(oarstat.main, *words, "-J")
            assert result.exit == 0, result.err
            return [int(key) for key in json.loads(result.out)]

        assert ids() == ids("-u", "alice") == ids("--since", "1h") == [inside, outside]
        assert ids("--frames") == [frame, inside, outside]
        assert ids("--ar", number) == [inside]
        assert ids("--ar", number, "--frames") == [frame, inside]
        unknown = login.type(oarstat.main, "--ar", "999")
        assert (unknown.exit, unknown.err) == (1, "# Error: the advance reservation 999 does not exist.\n")
        assert ids("-j", frame) == ids("-a", frame) == ids("--sql", f"job_id = {frame}") == [frame]
        fields = login.type(oarstat.main, "--frames", "--fields", "id,advance_reservation", "--no-header").out
        assert [line.split() for line in fields.splitlines()] == [
            [str(frame), str(number)],
            [str(inside), str(number)],
            [str(outside), "0"],
        ]
        full = login.type(oarstat.main, "-f", "-j", inside).out
        assert f"    reservation = None\n    advance_reservation = {number}\n" in full
        assert "advance_reservation" not in login.type(oarstat.main, "-f", "-j", outside).out

    def test_nodes_are_reserved_and_used_by_jobs_only(self, site: Site, login: LoginNode, number: int) -> None:
        site.round(NOW + 100)
        login.submit("--ar", number, "-l", "/resource_id=1,walltime=0:1", "x")
        site.round(NOW + 100)

        def shown(*words: object) -> str:
            return login.type(oarnodes.main, *words).out

        lines = [line.split() for line in shown("--summary").splitlines()]
        assert lines[0][1:5] == ["total", "reserved", "free", "used"]
        assert [line[1:5] for line in lines[1:]] == [
            ["2", "2", "-", "1"],
            ["2", "-", "2", "-"],
            ["4", "2", "2", "1"],
        ]
        assert shown("--free", "-l") == "node-2\n"
        assert f"\nreserved: {number}\nproperties:" in shown("-r", site.get(number).resources[0])
        assert "reserved" not in shown("node-2")
        records = json.loads(shown("-J"))
        assert [record.get("reserved") for record in records.values()] == [[number], [number], None, None]
        assert [("jobs" in record) for record in records.values()] == [True, False, False, False]
        assert json.loads(shown("--summary", "-J"))["node-1"]["reserved"] == 2

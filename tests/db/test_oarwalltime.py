"""What oarwalltime asks, what it shows, and how it ends."""

import json
from types import MappingProxyType

import pytest

from oar.cli import oarwalltime
from oar.cli.common.command import CommandResult
from oar.lib.access.records import User
from oar.lib.base.times import format_date
from oar.lib.bus.messages import Tag, Wake
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs.sql_requests import WalltimeChange
from oar.lib.jobs.states import JobState
from tests.builders import add_job, add_resources
from tests.db.reservation_rows import add_reservation
from tests.frontend import ALICE, Frontend

CHANGE_FORM = "As a change, +1:30 adds an hour and a half, -0:10 takes ten minutes, 5:00 means five hours in all."
DISABLED = "# An administrator lets walltimes change with WALLTIME_CHANGE_ENABLED in oar.conf.\n"

ROOT = User("root", 0)
BOB = User("bob", 1002)


@pytest.fixture
def frontend(database: Database) -> Frontend:
    """A frontend of a site that lets walltimes grow by an hour."""
    return Frontend(
        database, Config(walltime_change_enabled=True, walltime_max_increase=MappingProxyType({"_": 3600.0}))
    )


def allow(frontend: Frontend, **keys: object) -> None:
    """Change what the site allows: the values of WALLTIME_* keys, for all queues."""
    tables = {f"walltime_{name}": MappingProxyType({"_": value}) for name, value in keys.items()}
    frontend.config = Config(
        **{"walltime_change_enabled": True, "walltime_max_increase": MappingProxyType({"_": 3600.0})} | tables
    )


def running(frontend: Frontend, walltime: int = 7200, **columns: object) -> int:
    """Add a running job of alice."""
    nodes = add_resources(frontend.database, nodes=1)
    return add_job(frontend.database, JobState.RUNNING, on=nodes, walltime=walltime, **columns)  # type: ignore[arg-type]


def ask(frontend: Frontend, *words: object, user: User = ALICE) -> CommandResult:
    """Run oarwalltime, as alice if nobody is named."""
    return frontend.type(oarwalltime.main, *words, user=user)


def change_of(frontend: Frontend, job: int) -> WalltimeChange:
    """Return what is asked for a job."""
    found = frontend.ask(lambda tx: tx.job_requests.find_walltime_change(job))
    assert isinstance(found, WalltimeChange)
    return found


def accepted(job: int, verb: str = "accepted") -> CommandResult:
    """Return what is said of a request that is taken."""
    return CommandResult(
        0, f"Accepted: walltime change request {verb} for job {job}, it will be handled shortly.\n", ""
    )


def refused(code: int, line: str) -> CommandResult:
    """Return what is said of a request that is not."""
    return CommandResult(code, f"{line}\n", "")


def begin_of(frontend: Frontend, job: int) -> int:
    with frontend.database.begin() as tx:
        return tx.jobs.get(job).start_time


# -- advance reservations ---------------------------------------------------------------------------------------------


def test_a_job_in_a_reservation_grows_up_to_the_end_of_its_jobs(frontend: Frontend) -> None:
    job = running(frontend)
    begin = begin_of(frontend, job)
    number = add_reservation(frontend.database, state="r", start_time=begin, end_time=begin + 9006, resources=[])
    frontend.ask(lambda tx: tx.reservations.add_job(number, [job]))
    date = format_date(begin + 9000)
    why = f"the jobs of the advance reservation {number} are over at {date}"
    line = f"Forbidden: job {job} cannot grow by more than 0:30:0: {why}."
    assert ask(frontend, job, "+0:30:1") == ask(frontend, job, "+0:30:1", user=ROOT) == refused(3, line)
    assert json.loads(ask(frontend, job, "-J").out)["possible_increase"] == 1800
    assert ask(frontend, job, "+0:30") == accepted(job)
    frontend.ask(lambda tx: tx.reservations.update(number, flex="YES"))
    assert ask(frontend, job, "+1") == accepted(job, "updated")


def test_a_job_outside_does_not_grow_into_a_reservation(frontend: Frontend) -> None:
    job = running(frontend)
    begin = begin_of(frontend, job)
    with frontend.database.begin() as tx:
        held = [each.id for each in tx.jobs.assigned([job])[job]]
    number = add_reservation(frontend.database, start_time=begin + 7201, end_time=begin + 9000, resources=held)
    why = f"the advance reservation {number} begins on its resources at {format_date(begin + 7201)}"
    assert ask(frontend, job, "+1") == refused(3, f"Forbidden: job {job} cannot grow: {why}.")
    assert ask(frontend, job, "-0:1") == accepted(job)
    frontend.ask(lambda tx: tx.reservations.update(number, resources=[]))
    assert ask(frontend, job, "+1") == accepted(job, "updated")


# -- what is asked ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("+1", 3600), ("+0:30", 1800), ("-0:20", -1200), ("-0:0:5", -5), ("2:30", 1800), ("1", -3600), ("+0:0:90", 90)],
)
def test_a_change_is_more_or_less_or_a_new_total(frontend: Frontend, text: str, seconds: int) -> None:
    job = running(frontend)
    assert ask(frontend, job, text) == accepted(job)
    assert change_of(frontend, job) == WalltimeChange(pending=seconds)
    assert frontend.told[-1] == Wake(Tag.WALLTIME)


def test_a_request_leaves_an_event(frontend: Frontend) -> None:
    job = running(frontend)
    ask(frontend, job, "+0:30", "--timeout", "600")
    with frontend.database.begin() as tx:
        (event,) = tx.events.of_types(job, [EventType.WALLTIME_REQUEST])
    assert event.description == f"User alice requested a walltime change of the job {job} (+0:30:0/timeout: 0:10:0)"


def test_a_new_request_takes_the_place_of_the_pending_one(frontend: Frontend) -> None:
    job = running(frontend)
    ask(frontend, job, "+0:30", "--whole", "--timeout=60")
    assert ask(frontend, "--delay-next-jobs", job, "+0:10", user=ROOT) == accepted(job, "updated")
    assert change_of(frontend, job) == WalltimeChange(pending=600, delay_next_jobs=True)


@pytest.mark.parametrize(("change", "less"), [("-5", "5:0:0"), ("-0:4", "0:4:0"), ("1", "1:0:0"), ("0:0:0", "2:0:0")])
@pytest.mark.parametrize("user", [ALICE, ROOT])
def test_a_walltime_below_what_is_used_is_refused(database: Database, change: str, less: str, user: User) -> None:
    now = 1_800_000_000
    database._clock = lambda: now
    frontend = Frontend(database, Config(walltime_change_enabled=True))
    job = running(frontend, 7200)
    now += 7000
    line = (
        f"Forbidden: job {job} has used 1:56:40 of its 2:0:0 already, it cannot get {less} less (5 minutes less are"
        f" -0:5). To end it: oardel {job}."
    )
    assert ask(frontend, job, change, user=user) == refused(3, line)
    assert change_of(frontend, job) == WalltimeChange()
    assert ask(frontend, job, "-0:3", user=user) == accepted(job)


def test_nothing_is_no_walltime_though_nothing_was_used(database: Database) -> None:
    database._clock = lambda: 1_800_000_000
    frontend = Frontend(database, Config(walltime_change_enabled=True))
    job = running(frontend, 7200)
    assert ask(frontend, job, "0:0:0").exit == 3
    assert change_of(frontend, job) == WalltimeChange()


@pytest.mark.parametrize("text", ["+0", "-0", "2"])
def test_no_change_cancels_what_is_pending(frontend: Frontend, text: str) -> None:
    job = running(frontend)
    ask(frontend, job, "+0:30", "--whole")
    assert ask(frontend, job, text) == accepted(job, "updated")
    assert change_of(frontend, job) == WalltimeChange()


def test_the_site_may_choose_how_long_a_request_waits(frontend: Frontend) -> None:
    allow(frontend, change_timeout=900)
    job = running(frontend)
    ask(frontend, job, "+0:10")
    assert change_of(frontend, job).timeout == 900
    ask(frontend, job, "+0:10", "--timeout", 0)
    assert change_of(frontend, job).timeout == 0


# -- what is refused --------------------------------------------------------------------------------------------------


def test_without_the_functionality_there_is_nothing_to_ask_or_show(frontend: Frontend) -> None:
    frontend.config = Config()
    job = running(frontend)
    assert ask(frontend, job, "+1") == CommandResult(5, "Not available: functionality is disabled.\n", DISABLED)
    assert ask(frontend, job) == CommandResult(2, "FUNCTIONALITY IS DISABLED\n", DISABLED)


def test_a_job_that_is_not_there(frontend: Frontend) -> None:
    assert ask(frontend, 4711, "+1") == refused(4, "Not found: could not find job 4711.")
    assert ask(frontend, 4711) == refused(2, "UNKNOWN JOB")


def test_only_the_owner_and_administrators_may_ask(frontend: Frontend) -> None:
    job = running(frontend)
    assert ask(frontend, job, "+1", user=BOB) == refused(3, f"Forbidden: job {job} does not belong to you.")
    assert ask(frontend, job, "+1", user=ROOT) == accepted(job)


@pytest.mark.parametrize("state", [JobState.WAITING, JobState.SUSPENDED, JobState.TERMINATED])
def test_only_a_running_job_may_change(frontend: Frontend, state: JobState) -> None:
    job = add_job(frontend.database, state, on=add_resources(frontend.database))
    way_out = f"# It has not begun: oaralter {job} -l walltime=HOURS:MINUTES\n" if state is JobState.WAITING else ""
    assert ask(frontend, job, "+1") == CommandResult(3, f"Forbidden: job {job} is not running.\n", way_out)


@pytest.mark.parametrize("text", ["1:x", "+", "", "+-1", "1:2:3:4", "1.5", "\u0663", "+1 ; drop", "1" * 30])
def test_a_change_that_is_none(frontend: Frontend, text: str) -> None:
    job = running(frontend)
    assert ask(frontend, job, text) == CommandResult(
        1, "Bad request: syntax error.\n", f"# {text!r} is not a change. {CHANGE_FORM}\n"
    )
    assert change_of(frontend, job) == WalltimeChange()


def test_a_walltime_grows_by_so_much_in_all(frontend: Frontend) -> None:
    job = running(frontend)
    limit = "because the walltime cannot increase by more than 1:0:0."
    assert ask(frontend, job, "+1:0:1") == refused(3, f"Forbidden: request cannot be accepted {limit}")
    ask(frontend, job, "+1")
    assert ask(frontend, job, "+1:1") == refused(3, f"Forbidden: request cannot be updated {limit}")
    with frontend.database.begin() as tx:
        tx.execute("UPDATE walltime_change SET pending = 0, granted = 1800 WHERE job_id = %s", (job,))
    assert ask(frontend, job, "+0:31").exit == 3
    assert ask(frontend, job, "+0:30") == accepted(job)
    assert ask(frontend, job, "+9", user=ROOT) == accepted(job, "updated")


def test_the_most_may_be_a_part_of_the_first_walltime_or_have_no_limit(frontend: Frontend) -> None:
    job = running(frontend, 7200)
    allow(frontend, max_increase=0.25)
    assert ask(frontend, job, "+0:31").out.endswith("cannot increase by more than 0:30:0.\n")
    allow(frontend, max_increase=-1.0)
    assert ask(frontend, job, "+100") == accepted(job)
    allow(frontend, max_increase=0.0)
    assert ask(frontend, job, "+0:1").exit == 3


def test_limits_are_those_of_the_queue(frontend: Frontend) -> None:
    job = running(frontend)
    frontend.config = Config(
        walltime_change_enabled=True, walltime_max_increase=MappingProxyType({"default": 60.0, "_": -1.0})
    )
    assert ask(frontend, job, "+1").out.endswith("cannot increase by more than 0:1:0.\n")


def test_a_walltime_may_have_to_stay(frontend: Frontend) -> None:
    job = running(frontend)
    allow(frontend, reduction_disallowed=True)
    assert ask(frontend, job, "-0:10") == refused(1, "Bad request: walltime reduction is not allowed.")
    assert ask(frontend, job, "-0:10", user=ROOT) == accepted(job)


def test_a_short_job_may_be_too_short(frontend: Frontend) -> None:
    job = running(frontend, 3599)
    allow(frontend, min_for_change=3600.0)
    text = "Forbidden: walltime change is not allowed for a job with walltime < 1:0:0."
    assert ask(frontend, job, "+0:10") == refused(3, text)
    assert ask(frontend, running(frontend, 3600), "+0:10").exit == 0


def test_a_container_keeps_its_time(frontend: Frontend) -> None:
    job = running(frontend, types=("container",))
    text = "Forbidden: reducing the walltime of a container job is not allowed."
    assert ask(frontend, job, "-0:10", user=ROOT) == refused(3, text)
    assert ask(frontend, job, "+0:10") == accepted(job)


@pytest.mark.parametrize(
    ("option", "key", "words"),
    [
        ("--force", "allowed_users_to_force", "be forced"),
        ("--delay", "allowed_users_to_delay_jobs", "delay other jobs"),
    ],
)
def test_who_may_force_and_delay(frontend: Frontend, option: str, key: str, words: str) -> None:
    job = running(frontend)
    text = f"Forbidden: walltime change for this job is not allowed to {words}."
    assert ask(frontend, option, job, "+0:10") == refused(3, text)
    allow(frontend, **{key: ("bob",)})
    assert ask(frontend, option, job, "+0:10") == refused(3, text)
    assert ask(frontend, option, job, "+0:10", user=ROOT) == accepted(job)
    for allowed in (("bob", "alice"), ("*",)):
        allow(frontend, **{key: allowed})
        assert ask(frontend, option, job, "+0:10").exit == 0


def test_steps_and_the_whole_exclude_each_other(frontend: Frontend) -> None:
    job = running(frontend)
    allow(frontend, increment=600.0)
    assert ask(frontend, "--whole", job, "+0:30") == refused(
        1,
        "Bad request: OAR is configured to place walltime changes incrementally, disallowing usage of oarwalltime"
        " 'whole' option.",
    )


def test_somebody_without_a_name_may_not_ask(frontend: Frontend, monkeypatch: pytest.MonkeyPatch) -> None:
    job = running(frontend)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000)
    result = frontend.type(oarwalltime.main, job, "+1", user=None)  # type: ignore[arg-type]
    assert result == refused(1, "Bad request: anonymous request is not allowed.")


@pytest.mark.parametrize(
    ("words", "mistake"),
    [
        ((), "No job id is given."),
        (("x",), '"x" is not a job id. The first argument must be a job id.'),
        (("+x",), '"+x" is not a job id. The first argument must be a job id.'),
        (("1", "+1", "+2"), "More than one change is given. Write the change as one word."),
        (("12x", "+1"), '"12x" is not a job id. The first argument must be a job id.'),
        (("",), '"" is not a job id. The first argument must be a job id.'),
        (("9" * 40, "+1"), f'"{"9" * 40}" is not a job id. The first argument must be a job id.'),
    ],
)
def test_what_is_no_request_shows_the_usage_and_what_is_wrong(
    frontend: Frontend, words: tuple[str, ...], mistake: str
) -> None:
    result = ask(frontend, *words)
    assert (result.exit, result.err) == (4, f"# {mistake} {CHANGE_FORM}\n")
    assert result.out.startswith("Syntax error.\nUsage: oarwalltime [OPTIONS] JOB_ID [CHANGE]\n")
    for_programs = ask(frontend, "-J", *words)
    assert (for_programs.exit, for_programs.out) == (4, "")
    assert for_programs.err == result.out + result.err


def test_a_minus_in_the_first_place_begins_an_option(frontend: Frontend) -> None:
    assert ask(frontend, "-1:0") == CommandResult(1, "", "Unknown option: 1\n")
    wrong = 'Value "-5" invalid for option timeout (number expected)\n'
    assert ask(frontend, "--timeout=-5", 1, "+1") == CommandResult(1, "", wrong)


# -- what is shown ----------------------------------------------------------------------------------------------------


def test_how_it_stands_with_a_running_job(frontend: Frontend) -> None:
    job = running(frontend)
    allow(frontend, allowed_users_to_force=("*",), allowed_users_to_delay_jobs=("*",))
    assert ask(frontend, job).out == (
        f"Walltime change status for job {job} (job is running):\n"
        "  Current walltime:       2:0:0\n"
        "  Possible increase:     +1:0:0\n"
        "  Already granted:        0:0:0\n"
        "  Pending/unsatisfied:    0:0:0\n"
    )
    ask(frontend, job, "+0:15", "--timeout", 600, "--whole", "--delay-next-jobs")
    with frontend.database.begin() as tx:
        tx.execute(
            "UPDATE walltime_change SET granted = 1800, granted_with_force = 1800, granted_with_whole = 60"
            " WHERE job_id = %s",
            (job,),
        )
    assert ask(frontend, job).out == (
        f"Walltime change status for job {job} (job is running):\n"
        "  Current walltime:       2:0:0\n"
        "  Possible increase:    +0:30:0\n"
        "  Already granted:      +0:30:0 (forced: +0:30:0, whole: +0:1:0)\n"
        "  Pending/unsatisfied:  +0:15:0 (timeout: 0:10:0) (whole: yes) (will possibly delay next jobs)\n"
    )


def test_an_increase_without_limit(frontend: Frontend) -> None:
    job = running(frontend)
    allow(frontend, max_increase=-1.0)
    assert "  Possible increase:  UNLIMITED\n" in ask(frontend, job).out


def test_how_it_stood_with_a_job_that_has_ended(frontend: Frontend) -> None:
    job = running(frontend)
    allow(frontend, allowed_users_to_delay_jobs=("*",))
    ask(frontend, job, "+0:15", "--delay")
    with frontend.database.begin() as tx:
        tx.execute("UPDATE jobs SET state = 'Terminated' WHERE job_id = %s", (job,))
    assert ask(frontend, job).out == (
        f"Walltime change status for job {job} (job is not running):\n"
        "  Walltime:       2:0:0\n"
        "  Granted:        0:0:0\n"
        "  Unsatisfied:  +0:15:0 (would possibly have delayed next jobs)\n"
    )


def test_a_job_that_has_not_begun(frontend: Frontend) -> None:
    job = add_job(frontend.database)
    assert ask(frontend, job).out == f"Walltime change status for job {job} (job is not running yet):\n  N/A\n"


def test_programs_get_one_document(frontend: Frontend) -> None:
    job = running(frontend)
    (told,) = json.loads(ask(frontend, "--json", job, "+0:30").out)
    assert told == {"job_id": job, "ok": True, "message": accepted(job).out.rstrip("\n")}
    (told,) = json.loads(ask(frontend, "--json", job, "+3").out)
    assert (told["ok"], told["job_id"]) == (False, job)
    shown = json.loads(ask(frontend, "--json", job).out)
    assert {name: shown[name] for name in ("walltime", "possible_increase", "pending", "whole")} == {
        "walltime": 7200,
        "possible_increase": 3600,
        "pending": 1800,
        "whole": False,
    }
    assert ask(frontend, "--json", 4711) == CommandResult(2, "{}\n", "UNKNOWN JOB\n")


def test_the_walltimes_of_several_jobs_are_one_document(frontend: Frontend) -> None:
    jobs = [running(frontend), running(frontend)]
    shown = json.loads(ask(frontend, f"{jobs[0]},{jobs[1]}", "-J").out)
    assert {number: record["job_id"] for number, record in shown.items()} == {str(job): job for job in jobs}
    frontend.config = Config()
    assert ask(frontend, f"{jobs[0]},{jobs[1]}").out == "FUNCTIONALITY IS DISABLED\n"

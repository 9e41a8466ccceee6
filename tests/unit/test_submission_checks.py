"""What is wrong with a submission before the database is asked, with the documented words and codes."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.kao.rounds.reading import time_zone
from oar.lib.base.errors import BadRequest
from oar.lib.base.times import parse_date
from oar.lib.config.files import Config
from oar.lib.jobs.records import Dependency, Group, JobSpec, Level
from oar.lib.submission import checks, dependencies, job_reservation
from oar.lib.submission.checks import BadSubmission, Code
from oar.lib.submission.options import JobOptions
from oar.lib.submission.resource_request import ResourceRequest

T = TypeVar("T")
NOON = parse_date("2031-03-04 12:00:00")


@pytest.fixture
def paris() -> Iterator[None]:
    with time_zone.within("Europe/Paris"):
        yield


def outcome(parse: Callable[[], T]) -> T | BadSubmission:
    """Return what was read, or the complaint."""
    try:
        return parse()
    except BadSubmission as error:
        return error


Submission = tuple[JobOptions, JobSpec]


def submission(*, interactive: bool = False, reservation: str | None = None, **values: Any) -> Submission:
    """Return a submission of a command; ``values``: of its specification."""
    options = JobOptions(interactive=interactive, reservation=reservation)
    return options, JobSpec("alice", **{"command": "true", **values})


class TestModes:
    @pytest.mark.parametrize(
        ("submission", "code", "text"),
        [
            (submission(interactive=True, reservation="now"), 7, "a reservation cannot be interactive."),
            (submission(interactive=True, types=("noop",)), 17, "a noop job cannot be interactive."),
            (submission(command=" "), 5, "a command is needed."),
            (
                submission(notify="exec:/bin/x; rm"),
                16,
                "insecure characters found in notification method (the allowed regexp is: [a-zA-Z0-9_.\\/ -]+).",
            ),
        ],
    )
    def test_options_that_exclude_each_other(self, submission: Submission, code: int, text: str) -> None:
        with pytest.raises(BadSubmission) as error:
            checks.check_modes(*submission)
        assert (error.value.exit_code, str(error.value)) == (code, text)

    @pytest.mark.parametrize(
        "submission",
        [
            submission(),
            submission(command="", types=("noop",)),
            submission(command="", reservation="now"),
            submission(interactive=True),
        ],
    )
    def test_options_that_go_together(self, submission: Submission) -> None:
        checks.check_modes(*submission)

    @pytest.mark.parametrize(
        ("submission", "code", "text"),
        [
            (submission(array_size=0), 6, "an array job must have a positive number of sub-jobs."),
            (submission(array_size=11), 6, "an array job cannot have more than 10 sub-jobs."),
            (submission(interactive=True, array_size=2), 8, "an array job cannot be interactive."),
            (
                submission(interactive=True, parameters=("1", "2")),
                9,
                "a parameter file-based array job cannot be interactive.",
            ),
        ],
    )
    def test_arrays_that_cannot_be(self, submission: Submission, code: int, text: str) -> None:
        with pytest.raises(BadSubmission) as error:
            checks.check_array(*submission, 10)
        assert (error.value.exit_code, str(error.value), error.value.verify) == (code, text, False)


class TestTexts:
    @pytest.mark.parametrize("notify", ["mail:a@b", "[END]mail:a@b", "[ RUNNING, error ] exec : /bin/x -v"])
    def test_notifications(self, notify: str) -> None:
        checks.check_notify(notify)

    @pytest.mark.parametrize(
        "notify", ["", "a@b", "[NEVER]mail:a", "mail:", "pigeon:x", "mail:a@b\n", "[]mail:a@b", "mail:a"]
    )
    def test_what_is_no_notification(self, notify: str) -> None:
        with pytest.raises(BadSubmission, match="bad syntax for the notify option") as error:
            checks.check_notify(notify)
        assert error.value.exit_code == 250

    def test_names_of_output_files(self) -> None:
        checks.check_file_names("/a b/%jobid%\\x+=@:,~", None)
        with pytest.raises(BadSubmission, match=r"invalid stdout file name \(bad character\)") as out:
            checks.check_file_names("a;b", "c;d")
        with pytest.raises(BadSubmission, match=r"invalid stderr file name \(bad character\)") as err:
            checks.check_file_names("a", "$(id)")
        assert (out.value.exit_code, err.value.exit_code) == (244, 243)

    def test_a_command_is_whatever_a_kernel_takes(self) -> None:
        checks.check_command("\n\n'\"; é $(x)" + "x" * 131000)
        with pytest.raises(BadSubmission) as error:
            checks.check_command("é" * 70000)
        assert str(error.value) == "the command is too long (140000 bytes, at most 131071)."
        with pytest.raises(BadSubmission, match="is not UTF-8 text"):
            checks.check_command("\udcff")

    def test_signals_by_number_and_by_name(self) -> None:
        assert [checks.parse_signal(text) for text in ("12", "USR2", "SIGUSR2", " sigterm ")] == [
            12,
            12,
            12,
            15,
        ]
        for text in ("0", "99", "SIGNOTHING", ""):
            with pytest.raises(BadRequest):
                checks.parse_signal(text)

    @pytest.mark.parametrize(("name", "size"), [("1", 1), ("a b", 1), ("", 1), ("a" * 51, 1), ("ok", 2), ("a/b", 1)])
    def test_names_that_are_none_for_a_cpuset(self, name: str, size: int) -> None:
        with pytest.raises(BadSubmission, match=f'invalid cpuset name "{name}"'):
            checks.check_cpuset_name(name, size)


class TestRequests:
    def test_the_default_resources_stand_where_none_are_named(self) -> None:
        config = Config(oarsub_default_resources="/host=1/core=2")
        levels = (Level("host", 1), Level("core", 2))
        assert checks.parse_requests([], config) == (ResourceRequest((Group("", levels),)),)
        assert checks.parse_requests(["walltime=1"], config) == (ResourceRequest((Group("", levels),), 3600),)
        assert checks.parse_requests(["{mem > 1}"], config) == (ResourceRequest((Group("mem > 1", levels),)),)

    def test_the_number_of_alternatives_is_limited(self) -> None:
        checks.check_alternatives(["nodes=1"] * 3, 3)
        text = r"the job has 4 alternatives; at most 3 are allowed \(MAX_ALTERNATIVES\): use fewer -l\."
        with pytest.raises(BadSubmission, match=text):
            checks.check_alternatives(["nodes=1"] * 4, 3)

    def test_the_nodes_are_named_unless_the_site_has_such_a_property(self) -> None:
        request = (ResourceRequest((Group("", (Level("nodes", 2),)),)),)
        named = checks.named(request, ["host"], Config(oarsub_nodes_resources="host"))
        assert named[0].groups[0].levels == (Level("host", 2),)
        assert checks.named(request, ["nodes"], Config())[0].groups[0].levels == (Level("nodes", 2),)


class TestDependencies:
    @pytest.mark.parametrize(
        ("text", "condition", "least", "most"),
        [
            ("12", "", "", ""),
            ("12:ok", "ok", "", ""),
            ("12:start", "start", "", ""),
            ("12,60", "", "60", ""),
            ("12,,600", "", "", "600"),
            ("12:notok,[-5,]+30", "notok", "[-5", "]+30"),
            (" 12:any , 1 , 2 ", "any", "1", "2"),
        ],
    )
    def test_conditions_and_windows(self, text: str, condition: str, least: str, most: str) -> None:
        assert dependencies.parse([text]) == (Dependency(0, 12, condition, least, most),)

    @pytest.mark.parametrize("shift", ["9999999999", "-9999999999", "]1234567890"])
    def test_a_window_that_the_scheduler_does_not_read_is_refused(self, shift: str) -> None:
        for text in (f"12,{shift}", f"12,,{shift}"):
            assert isinstance(outcome(lambda text=text: dependencies.parse([text])), BadSubmission)  # type: ignore[misc]

    def test_the_last_word_about_a_job_counts(self) -> None:
        assert [each.condition for each in dependencies.parse(["1:ok", "2", "1:any"])] == ["any", ""]

    @given(st.text())
    def test_what_is_no_dependency_is_refused_in_one_line(self, text: str) -> None:
        answer = outcome(lambda: dependencies.parse([text])[0])
        if isinstance(answer, BadSubmission):
            assert answer.exit_code == Code.REQUEST
            assert "\n" not in str(answer)
            assert str(answer).encode()
        else:
            assert str(answer.required) in text


class TestReservations:
    @pytest.mark.parametrize(
        ("text", "start", "stop"),
        [
            ("2031-03-05 10:00:00", "2031-03-05 10:00:00", ""),
            ("2031-3-5 8:05", "2031-03-05 08:05:00", ""),
            ("now", "2031-03-04 12:00:00", ""),
            ("14", "2031-03-04 14:00:00", ""),
            ("tomorrow", "2031-03-05 00:00:00", ""),
            ("tomorrow 8:00", "2031-03-05 08:00:00", ""),
            ("Today 13:30,tomorrow", "2031-03-04 13:30:00", "2031-03-05 00:00:00"),
            ("monday 9", "2031-03-10 09:00:00", ""),
            ("tuesday", "2031-03-11 00:00:00", ""),  # the day itself is a Tuesday
            ("tomorrow 8:00,tomorrow 10:00", "2031-03-05 08:00:00", "2031-03-05 10:00:00"),
            ("friday 8:00,friday 18:00", "2031-03-07 08:00:00", "2031-03-07 18:00:00"),
            ("friday 18:00,friday 8:00", "2031-03-07 18:00:00", "2031-03-14 08:00:00"),
            ("friday 18:00, monday 8:00", "2031-03-07 18:00:00", "2031-03-10 08:00:00"),
            ("monday,wednesday", "2031-03-10 00:00:00", "2031-03-12 00:00:00"),
            ("yesterday,tomorrow", "2031-03-04 12:00:00", "2031-03-06 12:00:00"),
            ("+2h,+30m", "2031-03-04 14:00:00", "2031-03-04 14:30:00"),
            ("+1d2h30min", "2031-03-05 14:30:00", ""),
            ("14:30:10,16", "2031-03-04 14:30:10", "2031-03-04 16:00:00"),
            ("now,18:00", "2031-03-04 12:00:00", "2031-03-04 18:00:00"),
            ("22:00,6:00", "2031-03-04 22:00:00", "2031-03-05 06:00:00"),
            ("2031-03-06 22:00:00, 1:00", "2031-03-06 22:00:00", "2031-03-07 01:00:00"),
            ("+1:30,+2", "2031-03-04 13:30:00", "2031-03-04 15:30:00"),
            ("2031-03-01 10:00:00,2031-03-01 12:00:00", "2031-03-04 12:00:00", "2031-03-04 14:00:00"),
        ],
    )
    def test_dates(self, text: str, start: str, stop: str) -> None:
        window = job_reservation.parse(text, NOON)
        assert (window.start, window.stop) == (parse_date(start), parse_date(stop) if stop else 0)

    @pytest.mark.usefixtures("paris")
    @pytest.mark.parametrize(
        ("text", "start", "hours"),
        [
            ("2031-10-25 22:00,6:00", "2031-10-25 22:00", 9),  # the night in which clocks go back
            ("2031-03-29 22:00,6:00", "2031-03-29 22:00", 7),  # and that in which they go forward
            ("2031-10-26 6:00,6:00", "2031-10-26 6:00", 24),
            ("2031-10-25 6:00,6:00", "2031-10-25 6:00", 25),
        ],
    )
    def test_an_end_on_the_next_day_is_at_that_time_though_clocks_change(
        self, text: str, start: str, hours: int
    ) -> None:
        window = job_reservation.parse(text, NOON)
        assert (window.start, window.walltime) == (parse_date(start), hours * 3600)

    @pytest.mark.parametrize("text", ["9999-12-31 22:00,6:00", "9999-12-31 22:00,monday", "0001-01-01 1:00,monday"])
    def test_a_day_beyond_the_calendar_is_refused(self, text: str) -> None:
        with pytest.raises(BadSubmission):
            job_reservation.parse(text, NOON)

    @pytest.mark.parametrize(("text", "late"), [("11:00", 3600), ("11:00,13:00", 3600), ("13:00", 0), ("now", 0)])
    def test_how_long_ago_a_start_is(self, text: str, late: int) -> None:
        assert job_reservation.parse(text, NOON).late == late

    @pytest.mark.parametrize(
        ("text", "which"),
        [("", "start"), ("the day after tomorrow", "start"), ("25:00", "start"), ("now,now", "end"), ("now,", "end")],
    )
    def test_what_is_no_date(self, text: str, which: str) -> None:
        with pytest.raises(BadSubmission) as error:
            job_reservation.parse(text, NOON)
        assert error.value.exit_code == 7
        wrong = text.partition(",")[2] if which == "end" else text
        assert str(error.value) == (
            f"syntax error in <{which} date> for the -r or --reservation option."
            ' It takes a date as argument with the format: "YYYY-MM-DD hh:mm:ss".\n'
            f"# {checks.quote(wrong)} is none. Or write: now, 18:30, tomorrow 8:00, friday 18:30, +2h, +1d, +1:30."
        )

    def test_an_end_before_the_start(self) -> None:
        with pytest.raises(BadSubmission, match=r"reservation end date must be after start date\."):
            job_reservation.parse("2031-03-05 10:00,2031-03-05 09:00:00", NOON)

    @given(st.text())
    def test_any_text_is_a_window_or_a_complaint(self, text: str) -> None:
        answer = outcome(lambda: job_reservation.parse(text, NOON))
        if isinstance(answer, BadSubmission):
            assert answer.exit_code == 7
        else:
            assert answer.stop == 0 or answer.stop > answer.start

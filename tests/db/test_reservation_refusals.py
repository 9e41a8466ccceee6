"""What commands of advance reservations say of a way out: which form is allowed, whom to ask, which option lifts it."""

import json
from pathlib import Path

import pytest

from oar.cli.common.command import CommandResult
from oar.lib.jobs.states import JobState
from oar.lib.reservations.states import ReservationState
from tests.builders import add_job, add_resources, execute_sql
from tests.db.reservation_desk import ALICE, EVE, HOUR, NOW, Desk
from tests.plain import same_in_all_formats, without_way_out

DURATION = "write h:m:s, as 1:30:0, seconds, or units, as 90m, 2h, 1d12h"
DATE = "write [[CC]YY]MMDDhhmm[.SS], YYYY-MM-DD hh:mm[:ss], tomorrow 8:00, now, or +DURATION"
#: What is typed, the message in the words of Grid Engine, and the advice below it; '' = not compared.
REFUSALS = [
    ("-d xx", 'qrsub: Wrong time format "xx" specified to -d option', DURATION),
    ("-d 60 -flex maybe", 'qrsub: invalid option argument "-flex maybe"', ""),
    ("-d 60 -idle xx", 'qrsub: Wrong time format "xx" specified to -idle option', DURATION),
    ("-a x -d 60", 'qrsub: Wrong date/time format "x" specified to -a option', DATE),
    ("-e 13321200 -d 60", 'qrsub: Wrong date/time format "13321200" specified to -e option', ""),
    ("-a 202701150759 -d 60", "start time is in the past", ""),
    ("-d 0", "start time is later than end time", ""),
    ("-a 202701151000 -e 202701150900", "start time is later than end time", ""),
    ("-a 202701151000 -e 202701151000", "start time is later than end time", ""),
    (
        "-a 202701151000",
        'missing value for "end time or duration" in advance reservation request',
        "write -d with a duration, as 2:0:0 or 90m, or -e with a date",
    ),
    ("-a +1h -e +3h -d 1h", "difference between end and start time does not correspond to duration", ""),
    ("-d 6", "the duration must be longer than 6 seconds", ""),
    ("-d 1000000000", "the reservation would end more than 10 years from now", ""),
    ("-a 210001010000 -d 60", "the reservation would end more than 10 years from now", ""),
    ("-d 60 -window 3650d", "the reservation would end more than 10 years from now", ""),
    ("-a +1h -d 60 -rrule FREQ=MONTHLY;INTERVAL=60", "the reservation would end more than 10 years from now", ""),
    ("-d 60 -w x", 'qrsub: invalid option argument "-w x"', "use e, or v to verify only"),
    ("-d 60 -he perhaps", 'qrsub: invalid option argument "-he perhaps"', "write yes or no"),
    ("-d 60 -now perhaps", 'qrsub: invalid option argument "-now perhaps"', ""),
    (
        "-d 60 -m z",
        'qrsub: Wrong mail options list format "z" specified to -m option',
        "write letters of b (begin), e (end) and a (error) together, as bea, or n alone",
    ),
    ("-d 60 -m nb", 'qrsub: Wrong mail options list format "nb" specified to -m option', ""),
    ("-d 60 -u nosuch", "error: nosuch is not known as a user", ""),
    ("-d 60 -u @nosuch", 'Userset or group "nosuch" does not exist', ""),
    ("-d 60 -l nosuch=1", 'unknown resource "nosuch"', ""),
    ("-d 60 -l /nosuch=1", 'unknown resource "nosuch"', ""),
    (
        "-d 60 -l slots=2",
        '"advance_reservation" denied: use parallel environments instead of requesting slots explicitly',
        "write -pe slots 2",
    ),
    (
        "-d 60 -pe nosuch 2",
        'job rejected: the requested parallel environment "nosuch" does not exist',
        "there are alloc_pe_slots, mpi, round_robin, slots, smp",
    ),
    (
        "-d 60 -ckpt nosuch",
        'job rejected: the requested checkpointing environment "nosuch" does not exist',
        "this site has none",
    ),
    (
        "-d 60 -q nosuch",
        'Job was rejected because job requests unknown queue "nosuch"',
        "the queues are admin, besteffort, default",
    ),
    (
        "-d 60 -q default@nosuch",
        'Job was rejected because job requests unknown queue "default@nosuch"',
        'no host matches "nosuch"',
    ),
    (
        "-d 60 -q default@@nosuch",
        'Job was rejected because job requests unknown queue "default@@nosuch"',
        "this site has no host groups",
    ),
    ("-d 60 -masterq nosuch", 'Job was rejected because job requests unknown queue "nosuch"', ""),
    ("-d 60 -N 1bad", 'denied: "1bad" is not a valid object name (cannot start with a digit)', ""),
    (
        "-d 60 -N a/b",
        'denied: "a/b" is not a valid object name (invalid character)',
        "a name begins with a letter or _, then there may be letters, digits and _ . + -",
    ),
    ("-d 60 -pe slots 0", 'denied: "0" is not a slot range: write n, n-m, n-, -m, or several with commas', ""),
    ("-d 60 -alloc 2 3", "denied: 3 slots cannot be divided into 2 on each host", "write a multiple of 2"),
    (
        "-d 60 -alloc x 3",
        'denied: "x" is not an allocation rule: write $fill_up, $pe_slots, $round_robin or a number',
        "",
    ),
    ("-d 60 -l /core=1 -l cpuset=1", "denied: OAR's and Grid Engine's requests cannot be mixed", ""),
    ("-d 60 -l nodes=1,walltime=1", "denied: write -d for the duration, and no walltime in -l", ""),
    ("-d 60 -l /network_address=1,walltime=1", "denied: write -d for the duration, and no walltime in -l", ""),
    ("-d 60 -pe slots 5", "Error: No queue instances to reserve", ""),
    ("-d 60 -l h=other*", "Error: No queue instances to reserve", ""),
    ("-d 60 -l /network_address=3", "Error: No queue instances to reserve", ""),
    ("-d 60 -owner root", 'denied: "alice" must be manager for -owner and -ignore_jobs', ""),
    ("-d 60 -M a\nb", 'denied: "a\nb" is not a mail address', "write user or user@host, with commas"),
    ("-d 60 -rrule FREQ=DAILY -depth x", "", "write a number from 1 to 1000"),
    ("-d 60 -rrule FREQ=DAILY -conflict x", "", "write fail or skip"),
    ("-d 60 -l cpusett=1", "", 'did you mean "cpuset"?'),
    ("-d 60 -h node-1,node-9", "", "there are node-1, node-2"),
    ("-d 60 -h node-9", "", "there are node-1, node-2"),
    ("-d 60 -l h=node-2,nodes=2", "", "write -l nodes=2 -h node-2"),
    ("-d 60 -l nodes=2,q=default,cpuset=1", "", "write -l nodes=2 -q default -p \"cpuset = '1'\""),
    ("-d 60 -l network_address=2,h_rt=1:0:0", "", "write -l network_address=2 -d 1:0:0"),
    ("-d 60 -l nodes=1 -l h=node-1", "", "use only one of them; -h, -q and -p can be used with both"),
    ("-d 60 -l nodes=1/x", "", "write it like nodes=2/core=1, with numbers from 1 on, ALL or BEST"),
    ("-d 60 -l {cpuset=0", "", "write it like nodes=2/core=1, with numbers from 1 on, ALL or BEST"),
    ("-d 60 -l nodes=-1", "", "write nodes=2 for two nodes: a number from 1 on, ALL or BEST"),
    ("-d 60 -pe slots 9999", "", "write at most 4"),
    ("-a 202702291200 -d 60", "", f"2027 has no such day or time: {DATE}"),
    ("-a 02291200 -d 60", "", f"2027 has no such day or time: {DATE}"),
    ("-d 60 -nosuch", "", "qrsub -help prints the options"),
    ("-d 60 word", "", "qrsub -help prints the options"),
]


@pytest.mark.parametrize(("line", "text", "way_out"), REFUSALS)
def test_a_request_is_refused_in_the_words_of_grid_engine_and_leaves_nothing(
    silent_desk: Desk, line: str, text: str, way_out: str
) -> None:
    before = silent_desk.counts()
    result = silent_desk.qrsub(*line.split(" "))
    assert (result.exit, result.out) == (1, "")
    if text:
        assert without_way_out(result.err) == f"{text}\n"
    if way_out:
        assert result.err.splitlines()[-1] == f"  {way_out}"
    assert silent_desk.counts() == before


#: What is typed with an empty value, and what is said of it.
EMPTY = [
    (["-h", ""], 'qrsub: -h "" has no value\n  leave it out, or write hosts\n'),
    (["-q", " , "], 'qrsub: -q "," has no value\n  leave it out, or write queues\n'),
    (["-masterq", ""], 'qrsub: -masterq "" has no value\n  leave it out, or write queues\n'),
    (["-ckpt", ""], 'qrsub: -ckpt "" has no value\n  leave it out, or write the name of one\n'),
    (["-owner", ""], 'qrsub: -owner "" has no value\n  leave it out, or write a user\n'),
    (["-u", ""], 'error: the user list "" is empty\n'),
    (["-now", ""], "Option now has an empty argument: yes|no\n  qrsub -help prints the options\n"),
    (["-l", ""], 'denied: -l "" has no value\n  leave it out, or write name=value, or nodes=2\n'),
    (["-l", ","], 'denied: -l "," has no value\n  leave it out, or write name=value, or nodes=2\n'),
    (
        ["-l", "h=node-1,,q=default"],
        'denied: -l "h=node-1,,q=default" has an empty part\n  write name=value, with one comma between two of them\n',
    ),
    (["-l", "h"], 'denied: "h=" has no value\n  write a value for h, or leave it out\n'),
]


@pytest.mark.parametrize(("words", "said"), EMPTY)
def test_a_list_without_a_word_does_not_mean_all(silent_desk: Desk, words: list[str], said: str) -> None:
    """As in a script whose variable is empty."""
    before = silent_desk.counts()
    assert silent_desk.qrsub("-d", "60", *words) == CommandResult(1, "", said)
    assert silent_desk.counts() == before


def test_a_list_without_a_word_in_a_file_is_refused_with_the_file(silent_desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "ar_request"
    path.write_text("-h ''\n")
    path.chmod(0o644)
    said = f'error: {path}: qrsub: -h "" has no value\n  leave it out, or write hosts\n'
    assert silent_desk.qrsub("-d", "60") == CommandResult(1, "", said)


def test_a_name_and_an_account_may_be_empty(desk: Desk) -> None:
    reservation = desk.granted("-d", "60", "-N", "", "-A", "", "-p", "")
    assert (reservation.name, reservation.account) == ("", "")


def test_who_asks_for_mails_where_none_is_sent_is_told_so(desk: Desk) -> None:
    assert desk.qrsub("-d", "60", "-m", "be").err == ""
    desk.config = desk.config.replace(mail_sender=None)
    said = "warning: no mail server is configured (MAIL_SMTP_SERVER, MAIL_SENDER): no mail is sent (mails of -m be).\n"
    assert desk.qrsub("-d", "60", "-m", "be").err == said
    assert desk.qrsub("-d", "60", "-m", "n").err == ""


def test_a_request_that_no_later_start_helps_is_told_so_and_nothing_is_reserved(desk: Desk) -> None:
    ids = add_resources(desk.database, nodes=1, cores=1)
    job = add_job(desk.database, JobState.SUSPENDED, on=ids)
    free = f"only 4 of 5 suitable slots are free until 01/15/2027 10:00:00 (suspended job {job})"
    refused = f"denied: Reservation can't be granted\n  {free}\n  no later start was found\n"
    assert desk.qrsub("-a", "+1h", "-d", "1h", "-pe", "slots", "5") == CommandResult(1, "", refused)
    row = desk.last()
    assert (row.state, row.resources, row.is_live) == (ReservationState.REFUSED, (), False)
    assert desk.granted("-a", "+1h", "-d", "1h", "-pe", "slots", "4").granted_slots == 4


@pytest.mark.parametrize(
    ("line", "lack"),
    [
        ("-pe alloc_pe_slots 3", "no node with 3 resources can be used, 1 asked\n  a node has at most 2"),
        ("-l /nodes=2/resource_id=3", "no node with 3 resources can be used, 2 asked\n  2 nodes have at most 2 each"),
        (
            "-pe smp 2 -h node-1 -p cpuset='1'",
            "no node with 2 resources matches -h node-1 -p cpuset='1', 1 asked\n  a node has at most 1",
        ),
        ("-pe slots 3 -l h=node-2,h_rt=9", "2 resources match -l h=node-2, 3 asked"),
        ("-pe slots 5", "5 slots requested, 4 exist\n  write at most 4"),
        ("-l h=other*", "no resource has network_address=other*\n  there are node-1, node-2"),
        ("-l /network_address=3", "2 nodes can be used, 3 asked"),
        ("-l {cpuset='7'}/nodes=1", "no node matches -l {cpuset='7'}/nodes=1, 1 asked"),
        ("-l nodes=3 -q all.q@node-1", "1 node matches -q all.q@node-1, 3 asked"),
    ],
)
def test_what_can_never_be_had_is_told_in_the_words_of_the_request(silent_desk: Desk, line: str, lack: str) -> None:
    refused = f"Error: No queue instances to reserve\n  {lack}\n"
    assert silent_desk.qrsub("-d", "60", *line.split(" ")) == CommandResult(1, "", refused)


def test_a_number_that_is_too_large_is_told_the_largest(silent_desk: Desk) -> None:
    refused = silent_desk.qrsub("-d", "60", "-pe", "mpi", "9" * 60).err
    assert refused == f'denied: "{"9" * 40}" is not a slot range: the largest number is 9999999\n'


def test_an_unknown_name_is_told_those_that_there_are(silent_desk: Desk) -> None:
    first, second = silent_desk.qrsub("-d", "60", "-l", "nosuch=3").err.splitlines()
    assert first == 'unknown resource "nosuch"'
    assert second.startswith("  there are h, q, h_rt")
    assert "properties (" in second


def test_nodes_are_counted_where_nodes_are_asked_for(desk: Desk) -> None:
    number = desk.granted("-a", "+1h", "-d", "1h", "-l", "nodes=1").number
    refused = desk.qrsub("-a", "+1h", "-d", "1h", "-l", "nodes=2")
    assert refused.err.splitlines()[1].startswith("  only 1 of 2 suitable nodes are free until ")
    assert refused.err.splitlines()[1].endswith(f"(advance reservation {number})")


def test_occurrences_in_each_others_way_name_each_other(desk: Desk) -> None:
    words = ("-a", "+1h", "-d", "2h", "-l", "nodes=2", "-rrule", "FREQ=HOURLY", "-depth", "2", "-w", "v")
    assert "(another one of its series)" in desk.qrsub(*words).err


@pytest.mark.parametrize("words", [(), ("-w", "v")])
def test_a_refused_series_is_told_when_all_of_it_has_a_place(desk: Desk, words: tuple[str, ...]) -> None:
    desk.granted("-a", "+25h", "-d", "2h", "-l", "nodes=2")
    asked = ("-d", "1h", "-l", "nodes=2", "-rrule", "FREQ=DAILY;COUNT=3", "-depth", "3")
    refused = desk.qrsub("-a", "+1h", *asked, *words, "-J")
    assert refused.err.splitlines()[-1] == (
        "  the earliest possible start of the whole series is 01/15/2027 11:00:00 (-a 202701151100.00)"
    )
    assert json.loads(refused.out)["proposal"] == NOW + 3 * HOUR
    assert desk.qrsub("-a", "202701151100.00", *asked).exit == 0


def test_no_start_of_a_series_is_proposed_at_which_its_rule_gives_other_dates(desk: Desk) -> None:
    desk.granted("-a", "+1h", "-d", "2h", "-l", "nodes=2")
    refused = desk.qrsub("-a", "+1h", "-d", "1h", "-l", "nodes=2", "-rrule", "FREQ=DAILY;BYHOUR=9")
    assert refused.err.splitlines()[1].startswith("  occurrence 1, 01/15/2027 09:00:00: only 0 of 2 suitable nodes")
    assert len(refused.err.splitlines()) == 2


def test_a_rule_is_refused_with_what_its_part_may_be(silent_desk: Desk) -> None:
    assert silent_desk.qrsub("-d", "60", "-rrule", "FREQ=YEARLY").err == (
        'qrsub: Wrong rule "FREQ=YEARLY" specified to -rrule option:'
        " FREQ cannot be YEARLY: write HOURLY, DAILY, WEEKLY or MONTHLY\n"
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("-u", "-d", "60"), "Option u requires an argument: LIST\n  in a shell $user needs quotes: '$user'"),
        (
            ("-alloc", "4", "-d", "60"),
            "Option alloc requires an argument: RULE RANGE\n  in a shell $fill_up needs quotes: '$fill_up'",
        ),
        (("-d", "60", "-he"), "Option he requires an argument: yes|no"),
        (("-d", "60", "-pe", "smp", "-N", "x"), "Option pe requires an argument: NAME RANGE"),
        (("-d", "60", "-verbos"), "Unknown option: verbos\n  did you mean -verbose?"),
    ],
)
def test_a_forgotten_argument_swallows_no_option(silent_desk: Desk, words: tuple[str, ...], text: str) -> None:
    assert silent_desk.qrsub(*words) == CommandResult(1, "", f"{text}\n  qrsub -help prints the options\n")


def test_a_negative_range_and_what_looks_like_an_option_behind_an_equals_sign_are_arguments(desk: Desk) -> None:
    assert desk.granted("-d", "60", "-pe", "slots", "-3").granted_slots == 3
    assert desk.granted("-a", "+1h", "-d", "60", "-A=-d").account == "-d"


@pytest.mark.parametrize("option", ["-A", "-N", "-project", "-u", "-h", "-q", "-masterq", "-ckpt", "-rrule", "-owner"])
@pytest.mark.parametrize("letter", ["\n", "\r", "\x85", "\u2028", "\x9b"])
def test_a_text_that_would_forge_a_line_is_refused(silent_desk: Desk, option: str, letter: str) -> None:
    before = silent_desk.counts()
    result = silent_desk.qrsub("-d", "60", option, f"root{letter}root")
    first, *others = result.err.splitlines()
    assert (result.exit, result.out, first.startswith("denied: ")) == (1, "", True)
    assert first.endswith("has control characters or is not UTF-8 text")
    assert others == ["  write it on one line"]
    assert silent_desk.counts() == before


def test_line_ends_are_white_space_in_a_request_and_a_condition(desk: Desk) -> None:
    request = "{cpuset =\n '1'}/nodes=1"
    granted = desk.granted("-d", "60", "-l", request, "-p", "cpuset = '1'\n AND\n type = 'default'")
    assert json.loads(granted.resource_list) == [["oar", "{cpuset = '1'}/nodes=1"]]


# -- machine formats --------------------------------------------------------------------------------------------------


def test_a_refusal_is_a_whole_document_in_each_format(desk: Desk) -> None:
    desk.granted("-a", "+1h", "-d", "1h", "-pe", "slots", "4")
    words = ("-a", "+1h", "-d", "1h", "-pe", "slots", "2")
    told = [desk.qrsub(*words, f"-{letter}") for letter in "JYXD"]
    assert {(each.exit, each.err.splitlines()[0]) for each in told} == {(1, "denied: Reservation can't be granted")}
    record = same_in_all_formats(*(each.out for each in told))
    assert record == {
        "ok": False,
        "message": told[0].err.rstrip("\n"),
        "reason": told[0].err.splitlines()[1].strip(),
        "proposal": NOW + 2 * HOUR,
    }
    verified = json.loads(desk.qrsub(*words, "-w", "v", "-J").out)
    assert (verified["ok"], verified["proposal"]) == (False, record["proposal"])


def test_every_refusal_is_a_document_with_a_machine_format(silent_desk: Desk) -> None:
    silent_desk.config = silent_desk.config.replace(max_advance_reservations=1)
    for words, user, code in (
        (("-d", "x"), ALICE, 1),
        (("-d", "60"), EVE, 1),
        (("-d", "60"), ALICE, 26),
        (("-d", "60", "-rrule", "FREQ=DAILY", "-depth", "2"), ALICE, 25),
    ):
        result = silent_desk.qrsub(*words, "-J", user=user)
        assert result.exit == code
        assert json.loads(result.out) == {
            "ok": False,
            "message": result.err.rstrip("\n"),
            "reason": None,
            "proposal": None,
        }


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("-terse", "-verbose"), "qrsub: the options -verbose and -terse exclude each other"),
        (("-terse", "-J"), "qrsub: the options -terse and -json exclude each other"),
        (("-terse", "-w", "v"), "qrsub: -terse cannot be used with -w v, which reserves nothing"),
    ],
)
def test_of_two_forms_of_output_none_is_forgotten(silent_desk: Desk, words: tuple[str, ...], text: str) -> None:
    result = silent_desk.qrsub("-d", "60", *words)
    assert (result.exit, result.err) == (1, f"{text}\n")


def test_of_two_windows_none_is_forgotten_and_the_one_that_is_typed_replaces_that_of_a_file(
    desk: Desk, tmp_path: Path
) -> None:
    said = "qrsub: the options -earliest and -window exclude each other\n"
    assert desk.qrsub("-d", "60", "-earliest", "-window", "1h") == CommandResult(1, "", said)
    path = tmp_path / "ar_request"
    path.write_text("-earliest\n")
    path.chmod(0o644)
    assert desk.granted("-a", "+1h", "-d", "60", "-window", "1h").start_window == 3600


# -- what is granted, and yet not as wished ---------------------------------------------------------------------------


def test_the_limit_holds_in_a_verification_too(desk: Desk) -> None:
    desk.config = desk.config.replace(max_advance_reservations=1)
    desk.granted("-d", "60")
    asked = desk.qrsub("-a", "+1h", "-d", "60")
    assert asked == CommandResult(25, "", "rejected: only 1 advance reservations are allowed per cluster\n")
    assert desk.qrsub("-a", "+1h", "-d", "60", "-w", "v") == asked


def test_what_is_missing_of_a_granted_reservation_is_told_with_the_grant(desk: Desk) -> None:
    execute_sql(desk.database, "UPDATE resources SET state = 'Absent', state_num = 2 WHERE network_address = 'node-1'")
    told = desk.qrsub("-a", "+1h", "-d", "60", "-h", "node-1", "-l", "nodes=1")
    number = desk.last().number
    assert told.out.splitlines() == [
        f"Your reservation {number} has been granted",
        "Its state is W: reserved host node-1 is Absent",
    ]
    with desk.database.snapshot() as tx:
        (created,) = tx.reservation_logs.logs([desk.last().id])
    assert (created.event, created.state, created.message) == ("CREATED", "W", "reserved host node-1 is Absent")
    begun = desk.qrsub("-d", "60", "-h", "node-1", "-l", "nodes=1").out.splitlines()
    assert begun[1:] == ["Its state is E: reserved host node-1 is Absent"]


def test_who_denies_himself_is_told(desk: Desk) -> None:
    told = desk.qrsub("-d", "60", "-u", "!alice")
    assert (told.exit, told.err) == (0, "warning: alice, its owner, has no access to it (-u).\n")
    assert desk.qrsub("-d", "60", "-u", "!root").err == desk.qrsub("-d", "60", "-u", "root").err == ""

"""What qrstat prints."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import xmlschema
import yaml

from oar.cli import qrstat
from oar.cli.common.command import CommandResult
from oar.kao.rounds.reading import time_zone
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.statements import Row, Statements
from oar.lib.jobs.states import JobState
from oar.lib.reservations.records import AccessEntry, ReservationLog, ReservationUsage
from oar.lib.reservations.states import ChangeAnswer
from oar.lib.reservations.states import ReservationState as S
from tests.builders import add_job, add_resources
from tests.db.console import Console
from tests.db.reservation_rows import add_reservation, numbers_begin_again

USER1, USER2 = User("user1", 1001), User("user2", 1002)
SCHEMA = xmlschema.XMLSchema(Path(__file__).parents[2] / "setup" / "qrstat.xsd")
PARIS = ZoneInfo("Europe/Paris")


def paris(*fields: int) -> int:
    """Return the epoch of a date in Paris."""
    return int(datetime(*fields, tzinfo=PARIS).timestamp())  # type: ignore[arg-type, misc]


@pytest.fixture(autouse=True)
def in_paris() -> Iterator[None]:
    """Let local time be that of Paris."""
    with time_zone.within("Europe/Paris"):
        yield


def add_both(console: Console) -> list[int]:
    """Add the two reservations of the handbook; return the ids of the resources of the second."""
    ids = add_resources(console.database, nodes=2, cores=2)
    add_reservation(
        console.database,
        192,
        ar_name="project_xy",
        state="r",
        start_time=paris(2006, 12, 14, 14, 47, 23),
        end_time=paris(2006, 12, 14, 14, 57, 33),
        resources=ids[:1],
    )
    granted = [*ids[:2], ids[2]]
    add_reservation(
        console.database,
        owner="user2",
        state="W",
        submission_time=paris(2006, 11, 27, 17, 11, 34),
        start_time=paris(2006, 12, 18, 10, 0, 0),
        end_time=paris(2006, 12, 19, 10, 0, 10),
        resources=granted,
        missing=[ids[2]],
        message="reserved host node-2 is Suspected",
        resource_list='[["myapp", "2"]]',
        account="acct1",
        replace_lost="YES",
        granted_pe="mpi",
        granted_slots=3,
        master_queue_list="default@node-1",
        checkpoint_name="dmtcp",
        mail_options="abe",
        mail_list="user1@host",
        revision=2,
        access=[AccessEntry("user1"), AccessEntry("user2"), AccessEntry("user9", denied=True)],
    )
    return granted


OVERVIEW = """\
AR-ID   name       owner        state start at            end at              duration
---------------------------------------------------------------------------------------
    192 project_xy user1        r     12/14/2006 14:47:23 12/14/2006 14:57:33 0:10:10
    193            user2        W     12/18/2006 10:00:00 12/19/2006 10:00:10 24:0:10
"""

DETAIL = """\
==============================================================
id:                         193
ar_name:                    
submission_time:            Mon Nov 27 17:11:34 2006
owner:                      user2
acl_list:                   user1,user2
start_time:                 Mon Dec 18 10:00:00 2006
end_time:                   Tue Dec 19 10:00:10 2006
duration:                   24:0:10
granted_slots:              default@node-1=2,default@node-2=1
resource_list:              myapp=2,slots=3
state:                      W
message:                    reserved host node-2 is Suspected
group:                      users
account:                    acct1
project:                    default
time_limit:                 24:0:4
error_handling:             soft
replace:                    yes
xacl_list:                  user9
granted_parallel_environment: mpi slots 3
master_queue_list:          default@node-1
checkpoint_name:            dmtcp
mail_options:               abe
mail_list:                  user1@host
jobs:                       running=1,waiting=2
revision:                   2
"""  # noqa: W291 - a name that is empty leaves its blanks

XML = """\
<?xml version="1.0" encoding="UTF-8"?>
<qrstat>
   <ar_summary>
      <id>193</id>
      <account>acct1</account>
      <owner>user2</owner>
      <submission_time>2006-11-27T17:11:34+01:00</submission_time>
      <start_time>2006-12-18T10:00:00+01:00</start_time>
      <end_time>2006-12-19T10:00:10+01:00</end_time>
      <duration>86410</duration>
      <state>W</state>
      <message>reserved host node-2 is Suspected</message>
      <resource_list>
         <resource name="myapp" type="2"/>
         <resource name="slots" type="3"/>
      </resource_list>
      <granted_slots>
         <granted_slots queue_instance="default@node-1" slots="2"/>
         <granted_slots queue_instance="default@node-2" slots="1"/>
      </granted_slots>
      <granted_parallel_environment>
         <parallel_environment>mpi</parallel_environment>
         <slots>3</slots>
      </granted_parallel_environment>
      <checkpoint_name>dmtcp</checkpoint_name>
      <mail_options>abe</mail_options>
      <mail_list>
         <mail user="user1" host="host"/>
      </mail_list>
      <acl_list>
         <acl user="user1"/>
         <acl user="user2"/>
      </acl_list>
      <xacl_list>
         <acl user="user9"/>
      </xacl_list>
   </ar_summary>
</qrstat>
"""


def show(console: Console, *arguments: object, user: User = USER1) -> str:
    """Run qrstat, which must find all that it is asked for; return what it prints."""
    result = console.type(qrstat.main, *arguments, user=user)
    assert (result.exit, result.err) == (0, "")
    return result.out


def numbers(console: Console, *arguments: object, user: User = USER1) -> list[int]:
    """Return the numbers of the reservations that are shown."""
    return [int(line) for line in show(console, "-terse", *arguments, user=user).splitlines()]


# -- texts ------------------------------------------------------------------------------------------------------------


def test_nothing_to_show_is_nothing(console: Console) -> None:
    assert console.type(qrstat.main, user=USER1) == CommandResult(0, "", "")


def test_the_overview_is_that_of_grid_engine_letter_for_letter(console: Console) -> None:
    add_both(console)
    assert show(console) == OVERVIEW


def test_reasons_and_asked_changes_stand_below_their_reservation(console: Console) -> None:
    add_both(console)
    ask_change(console, end=paris(2006, 12, 14, 15, 57, 33), account="b", is_forced=False)
    lines = OVERVIEW.splitlines()
    lines.insert(3, "       change asked: end 12/14/2006 15:57:33, account b")
    lines.append("       reserved host node-2 is Suspected")
    assert show(console, "-explain").splitlines() == lines


def ask_change(console: Console, **wanted: object) -> None:
    """Ask for a change of the first reservation, in place of the one that was asked for before."""
    with console.database.begin() as tx:
        for change in tx.reservations.open_changes():
            tx.reservations.answer_change(change.id, ChangeAnswer.DROPPED)
        tx.reservations.request_change(192, "user1", json.dumps(wanted), 0)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (
            {"request": "[]", "asked": {"resource_list": '[["oar", "/core=2"], ["licence", "1"]]'}},
            "resources /core=2, licence=1",
        ),
        ({"request": "[]", "asked": {}}, "resources of the same kind"),
        (
            {"request": "[]", "asked": {"resource_list": "[]", "pe": "mpi", "pe_range": "2-4"}},
            "resources mpi 2-4",
        ),
        ({"start": 1166104053, "name": "night"}, "start 12/14/2006 14:47:33, name night"),
        ({"is_hard": True, "replaces_lost": False, "idle_limit": 60}, "error_handling hard, replace no, idle_limit 60"),
        (
            {"is_hard": False, "replaces_lost": True, "mail_options": "ab"},
            "mail_options ab, error_handling soft, replace yes",
        ),
        ({"mail_list": "a@b", "access": [["root", False], ["bob", True]]}, "mail_list a@b, acl_list root,!bob"),
    ],
)
def test_all_that_is_asked_to_be_changed_is_told(console: Console, wanted: dict[str, object], told: str) -> None:
    add_both(console)
    ask_change(console, **wanted)
    assert f"       change asked: {told}" in show(console, "-explain").splitlines()
    assert f"{'change_asked:':<28}{told}" in show(console, "-explain", "-ar", "192").splitlines()
    assert json.loads(show(console, "-J", "-ar", "192"))["192"]["change"] == wanted


def test_others_are_not_shown_the_account_the_addresses_and_the_users_that_are_asked_for(console: Console) -> None:
    add_both(console)
    ask_change(console, end=10, account="b", mail_list="a@b", access=[["root", False]])
    told = "change asked: end 01/01/1970 01:00:10"
    assert show(console, "-explain", user=USER2).splitlines()[3].strip() == told
    assert show(console, "-explain", user=USER1).splitlines()[3].strip() != told
    assert json.loads(show(console, "-J", "-ar", "192", user=USER2))["192"]["change"] == {"end": 10}


def test_long_names_are_cut_in_the_overview(console: Console) -> None:
    add_reservation(console.database, 7, ar_name="a" * 20, owner="b" * 20, end_time=10)
    row = show(console).splitlines()[2]
    assert row == "      7 aaaaaaaaaa bbbbbbbbbbbb w     01/01/1970 01:00:00 01/01/1970 01:00:10 0:0:10"


def test_the_detail_is_that_of_grid_engine_and_ours_behind_it(console: Console) -> None:
    granted = add_both(console)
    running = add_job(console.database, JobState.RUNNING, on=granted[:1])
    waiting = [add_job(console.database) for _ in range(2)]
    with console.database.begin() as tx:
        tx.reservations.add_job(193, [running, *waiting])
    assert show(console, "-ar", 193, user=USER2) == DETAIL


def test_dates_can_be_those_of_iso(console: Console) -> None:
    add_both(console)
    assert show(console, "-iso").splitlines()[2].split()[4:] == [
        *("2006-12-14", "14:47:23", "2006-12-14", "14:57:33", "0:10:10")
    ]
    assert "start_time:                 2006-12-14 14:47:23\n" in show(console, "-iso", "-ar", "192")


def test_a_message_of_several_lines_is_a_line_for_each(console: Console) -> None:
    add_reservation(console.database, 5, state="E", message="first\nsecond", resources=[1], missing=[1])
    assert show(console, "-explain").splitlines()[3:] == ["       first", "       second"]
    detail = show(console, "-ar", "5")
    assert f"{'message:':<28}first\n{'message:':<28}second\n" in detail
    assert "<message>first; second</message>" in show(console, "-xml")


def test_what_was_repaired_is_no_reason_any_more(console: Console) -> None:
    add_reservation(console.database, 5, state="r", message="no longer so")
    assert "no longer" not in show(console, "-ar", "5") + show(console, "-explain") + show(console, "-xml")


def test_control_characters_forge_no_line(console: Console) -> None:
    add_reservation(console.database, 5, account="a\nid: 6\x1b[2J")
    assert f"{'account:':<28}a\\nid: 6\\x1b[2J\n" in show(console, "-ar", "5")


def test_resources_without_node_and_removed_ones_have_a_place(console: Console) -> None:
    ids = add_resources(console.database, nodes=1, cores=1)
    licences = add_resources(console.database, nodes=1, cores=2, network_address="", type="licence")
    add_reservation(console.database, 5, resources=[*ids, *licences, 9999])
    detail = show(console, "-ar", "5")
    assert f"{'granted_slots:':<28}default@licence=2,default@node-1=1,default@removed=1\n" in detail
    assert f"{'resource_list:':<28}slots=2\n" in detail


# -- which ------------------------------------------------------------------------------------------------------------


def test_requests_without_answer_and_refused_ones_are_never_shown(console: Console) -> None:
    add_reservation(console.database, 1, state="")
    add_reservation(console.database, state="n", ended=5)
    assert numbers(console, "-all") == []
    result = console.type(qrstat.main, "-ar", "1,2", user=USER1)
    assert result == CommandResult(1, "", "Following advance reservations do not exist:\n1\n2\n")


def test_those_that_do_not_exist_are_named_behind_the_others(console: Console) -> None:
    add_reservation(console.database, 7)
    result = console.type(qrstat.main, "-ar", "999,7", "-ar", "nosuch", user=USER1)
    assert (result.exit, result.err) == (1, "Following advance reservations do not exist:\n999\nnosuch\n")
    assert result.out.splitlines()[1] == f"{'id:':<28}7"


def test_reservations_are_chosen_by_numbers_names_and_patterns(console: Console) -> None:
    for name in ("alpha", "alpine", "beta", "", "beta"):
        add_reservation(console.database, ar_name=name)
    first = numbers(console)[0]
    assert numbers(console, "-ar", f"beta,{first}") == [first, first + 2, first + 4]
    assert numbers(console, "-ar", "al*") == [first, first + 1]
    assert numbers(console, "--ar=?e[st]a") == [first + 2, first + 4]
    assert numbers(console, "-ar", "*") == [first + place for place in range(5)]


def test_ended_ones_are_shown_by_number_or_on_demand(console: Console) -> None:
    add_reservation(console.database, 11, ar_name="old", state="x", ended=1000)
    add_reservation(console.database, ar_name="old", state="x")
    assert numbers(console) == [12]
    assert numbers(console, "-ar", "old") == [12]
    assert numbers(console, "-ar", "11") == [11]
    assert numbers(console, "-all") == [11, 12]
    assert numbers(console, "-all", "-ar", "o*") == [11, 12]


def test_how_it_was_asked_for_is_shown(console: Console) -> None:
    add_reservation(
        console.database,
        5,
        pe="mpi",
        pe_range="2-4",
        queue_list="all.q",
        host_list="node-1,node-2",
        properties="memnode > 1",
        interactive="YES",
        ignore_jobs="YES",
        flex="YES",
        idle_limit=300,
        start_window=7200,
    )
    detail = dict(line.split(": ", 1) for line in show(console, "-ar", "5").splitlines() if ": " in line)
    asked = {name: value.strip() for name, value in detail.items()}
    assert (asked["parallel_environment"], asked["queue_list"]) == ("mpi slots 2-4", "all.q")
    assert (asked["host_list"], asked["properties"]) == ("node-1,node-2", "memnode > 1")
    assert (asked["interactive"], asked["ignore_jobs"], asked["flex"]) == ("yes", "yes", "yes")
    assert (asked["idle_limit"], asked["start_window"]) == ("0:5:0", "2:0:0")
    record = json.loads(show(console, "-ar", "5", "-J"))["5"]
    assert record["parallel_environment"] == {"name": "mpi", "range": "2-4"}
    assert (record["queue_list"], record["host_list"]) == (["all.q"], ["node-1", "node-2"])
    assert (record["properties"], record["start_window"]) == ("memnode > 1", 7200)
    assert record["interactive"] is record["ignore_jobs"] is record["flex"] is True


def test_reservations_are_chosen_by_owner_and_state(console: Console) -> None:
    for place, state in enumerate("wWrExd"):
        add_reservation(console.database, 20 + place, state=state, owner=("user1", "user2")[place % 2])
    assert numbers(console, "-u", "$user") == [20, 22, 24]
    assert numbers(console, "-u", "$user", user=USER2) == [21, 23, 25]
    assert numbers(console, "-u", "us*2,user1") == [20, 21, 22, 23, 24, 25]
    assert numbers(console, "-u", "nobody") == []
    assert numbers(console, "-s", "wE") == [20, 23]
    assert numbers(console, "-ar", "20,21,22", "-u", "user1") == [20, 22]
    refused = console.type(qrstat.main, "-s", "q", user=USER1)
    assert refused == CommandResult(1, "", 'qrstat: invalid option argument "-s q"\n  write letters of wWrExd\n')
    for option, kind in (("-ar", "numbers or names"), ("-u", "users")):
        empty = console.type(qrstat.main, option, "", user=USER1)
        said = f'qrstat: {option} "" has no value\n  leave it out, or write {kind}\n'
        assert empty == CommandResult(1, "", said)
    empty = console.type(qrstat.main, "-s", "", user=USER1)
    assert empty == CommandResult(1, "", 'qrstat: invalid option argument "-s "\n  write letters of wWrExd\n')


def test_numbers_alone_are_in_no_machine_format(console: Console) -> None:
    add_reservation(console.database, 20)
    refused = console.type(qrstat.main, "-terse", "-J", user=USER1)
    assert refused == CommandResult(1, "", "qrstat: the options -terse and -json exclude each other\n")


def test_the_history_is_told(console: Console) -> None:
    add_reservation(console.database, 5)
    with console.database.begin() as tx:
        for row in (
            ReservationLog(5, paris(2006, 12, 14, 8), "CREATED", S.WAITING, author="user1"),
            ReservationLog(5, paris(2006, 12, 14, 9), "RESOURCES UNSATISFIED", S.WARNING, "n1", "a\nb"),
        ):
            tx.reservation_logs.log(row)
    assert show(console, "-log").splitlines()[2:] == [
        "      5 12/14/2006 08:00:00 w     CREATED                user1",
        "      5 12/14/2006 09:00:00 W     RESOURCES UNSATISFIED               a; b",
    ]
    events = json.loads(show(console, "-log", "-J"))["5"]["log"]
    assert yaml.safe_load(show(console, "-log", "-Y"))["5"]["log"] == events
    assert "'RESOURCES UNSATISFIED'" in show(console, "-log", "-D")
    assert [event["event"] for event in events] == ["CREATED", "RESOURCES UNSATISFIED"]


def test_the_xml_of_grid_engine_has_no_history_and_no_series(console: Console) -> None:
    add_reservation(console.database, 5)
    for option, thing in (("-log", "log"), ("-series", "series")):
        refused = console.type(qrstat.main, "-xml", option, user=USER1)
        text = f"qrstat: the XML format of Grid Engine has no {thing}: use -json or -yaml\n"
        assert refused == CommandResult(1, "", text)


def test_reservations_that_had_one_number_are_told_apart(console: Console) -> None:
    """The number of the ended ones is that of a live one again."""
    with numbers_begin_again(console.database):
        ids = [
            add_reservation(console.database, number, state="x", ended=ended, submission_time=date, ar_name=name)
            for number, ended, date, name in ((12, 50, 10, "oldest"), (12 + 9999999, 60, 20, "older"))
        ]
        alone = json.loads(show(console, "-J", "-all", user=USER1))
        assert {key: record["ar_name"] for key, record in alone.items()} == {"12@10": "oldest", "12": "older"}
        ids.append(add_reservation(console.database, 12 + 2 * 9999999, submission_time=30, ar_name="live"))
        records = json.loads(show(console, "-J", "-all", "-log", user=USER1))
        names = {"12@10": "oldest", "12@20": "older", "12": "live"}
        assert {key: record["ar_name"] for key, record in records.items()} == names
        assert {record["id"] for record in records.values()} == {12}
        assert all("log" in record for record in records.values())


# -- privacy ----------------------------------------------------------------------------------------------------------


def test_mail_addresses_are_seen_by_the_owner_and_operators_only(console: Console) -> None:
    add_both(console)
    assert "mail_list" not in show(console, "-ar", "193") + show(console, "-xml") + show(console, "-explain")
    assert json.loads(show(console, "-J"))["193"]["mail_list"] == []
    assert "user1@host" in show(console, "-ar", "193", user=USER2)
    assert "user1@host" in show(console, "-ar", "193", user=User("root", 0))
    with console.database.begin() as tx:
        tx.access.add_to_userset("aroperators", ["user1"])
    assert "user1@host" in show(console, "-ar", "193")


@pytest.mark.parametrize(
    ("user", "is_told"), [("user1", True), ("user2", True), ("user9", False), ("eve", False), ("oar", True)]
)
def test_a_private_site_hides_account_and_access_list_from_those_outside(
    console: Console, user: str, is_told: bool
) -> None:
    add_both(console)
    console = Console(console.database, Config(oarstat_private=True))
    record = json.loads(show(console, "-J", user=User(user, 2000)))["193"]
    assert (record["account"], record["acl_list"]) == (("acct1", ["user1", "user2"]) if is_told else ("", []))


# -- machine formats --------------------------------------------------------------------------------------------------


def test_xml_is_that_of_the_schema(console: Console) -> None:
    add_both(console)
    document = show(console, "-xml", "-ar", "193", user=USER2)
    assert document == XML
    SCHEMA.validate(document)
    assert show(console, "-X", "-ar", "193", user=USER2) == XML


def test_xml_is_valid_for_every_state_and_for_hostile_texts(console: Console) -> None:
    hostile = "<&\"'\x01\n]]>\u2028é😀"
    for state in "wWrExd":
        add_reservation(
            console.database,
            ar_name=hostile,
            account=hostile,
            state=state,
            message=f"{hostile}\n{hostile}",
            resource_list=json.dumps([[hostile, hostile]]),
            resources=[1],
            checkpoint_name=hostile,
            mail_list="a,b@c",
            access=[AccessEntry('<&"')],
        )
    document = show(console, "-xml", "-explain")
    SCHEMA.validate(document)
    summaries: Any = SCHEMA.to_dict(document)
    assert [each["state"] for each in summaries["ar_summary"]] == list("wWrExd")
    assert {each["name"] for each in summaries["ar_summary"]} == {hostile.replace("\x01", "\\x01")}
    assert summaries["ar_summary"][0]["mail_list"]["mail"] == [
        {"@user": "a", "@host": ""},
        {"@user": "b", "@host": "c"},
    ]


def test_xml_is_valid_for_one_that_holds_nothing(console: Console) -> None:
    add_reservation(console.database, 12, resources=[], queue_name="default")
    document = show(console, "-xml")
    SCHEMA.validate(document)
    assert '<granted_slots queue_instance="default" slots="0"/>' in document


def test_xml_is_valid_when_there_is_nothing_and_names_the_unknown(console: Console) -> None:
    SCHEMA.validate(show(console, "-xml"))
    result = console.type(qrstat.main, "-xml", "-ar", "9,<x>", user=USER1)
    SCHEMA.validate(result.out)
    assert "<id>9</id>" in result.out
    assert "<id>&lt;x&gt;</id>" in result.out
    assert result.exit == 1


def test_json_has_what_the_detail_has_with_types(console: Console) -> None:
    granted = add_both(console)
    waiting = add_job(console.database)
    with console.database.begin() as tx:
        tx.reservations.add_job(193, [waiting])
        tx.reservation_logs.add_bill({193: [ReservationUsage("default", "node-1", 2, 100, 60, 10, 5)]})
    record = json.loads(show(console, "-J", "-ar", "193", user=USER2))["193"]
    told = {key: record[key] for key in ("start_time", "duration", "granted_slots", "resources", "missing", "jobs")}
    assert told == {
        "start_time": paris(2006, 12, 18, 10),
        "duration": 86410,
        "granted_slots": [
            {"queue": "default", "host": "node-1", "slots": 2},
            {"queue": "default", "host": "node-2", "slots": 1},
        ],
        "resources": granted,
        "missing": granted[2:],
        "jobs": {"running": [], "waiting": [waiting]},
    }
    assert record["reasons"] == ["reserved host node-2 is Suspected"]
    assert record["usage"] == [
        {"queue": "default", "host": "node-1", "slots": 2, "reserved": 100, "used": 60, "unusable": 10}
    ]
    detail = [line.split(":")[0] for line in DETAIL.splitlines()[1:]]
    assert {key for key in detail if key != "message"} <= set(record)
    assert (record["id"], "reservation_id" in record) == (193, False)  # the key of its row is nobody's business


def test_a_thousand_reservations_take_a_fixed_number_of_statements(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = add_resources(console.database, nodes=2, cores=2)
    run = Statements.rows
    statements: list[str] = []

    def counted(self: Statements, sql: str, parameters: Any = ()) -> list[Row]:
        statements.append(sql)
        return run(self, sql, parameters)

    def count(*arguments: str) -> int:
        statements.clear()
        show(console, *arguments)
        return len(statements)

    monkeypatch.setattr(Statements, "rows", counted)
    ways = [("-explain",), ("-xml",), ("-J", "-log"), ("-ar", "*", "-explain")]
    add_reservation(console.database, resources=ids, access=[AccessEntry("@team")])
    before = [count(*way) for way in ways]
    for _ in range(999):
        add_reservation(console.database, resources=ids, access=[AccessEntry("@team")])
    assert [count(*way) for way in ways] == before
    assert max(before) < 12
    document = show(console, "-xml")
    SCHEMA.validate(document)
    assert document.count("<ar_summary>") == 1000


def test_a_name_of_ended_ones_is_unknown_and_the_option_that_shows_them_is_named(console: Console) -> None:
    add_reservation(console.database, 7, state="x", ended=5, ar_name="course")
    unknown = console.type(qrstat.main, "-ar", "course,nosuch", user=USER1)
    assert unknown.exit == 1
    assert unknown.err == (
        "Following advance reservations do not exist:\ncourse\nnosuch\n"
        "  some of these have ended: -all shows them, too\n"
    )
    assert "-all" not in console.type(qrstat.main, "-ar", "nosuch", user=USER1).err
    assert console.type(qrstat.main, "-all", "-ar", "course", user=USER1).exit == 0


def test_a_reservation_that_ended_since_it_was_idle_shows_when(console: Console) -> None:
    start, asked, idle = (paris(2006, 12, 14, hour) for hour in (9, 12, 10))
    shown: dict[str, Any] = {"state": "x", "start_time": start, "end_time": asked, "state_date": idle, "ended": idle}
    add_reservation(console.database, 9, **shown)
    overview = show(console, "-all", user=USER1).splitlines()[-1].split()
    assert overview[-3:] == ["12/14/2006", "10:00:00", "1:0:0"]
    detail = show(console, "-ar", "9", user=USER1)
    assert "end_time:                   Thu Dec 14 10:00:00 2006\nduration:                   1:0:0\n" in detail
    document = show(console, "-xml", "-ar", "9", user=USER1)
    assert "<end_time>2006-12-14T10:00:00+01:00</end_time>" in document
    assert "<duration>3600</duration>" in document
    record = json.loads(show(console, "-J", "-ar", "9", user=USER1))["9"]
    assert (record["end_time"], record["duration"]) == (idle, 3600)

"""Users whom qralter adds to the access list of an advance reservation: the rules of the site are asked for each."""

from oar.cli import qralter
from oar.cli.common.command import CommandResult
from tests.db.reservation_desk import Desk
from tests.frontend import add_rules

ONLY_NODE_2 = "if user == 'daemon':\n    add_property(\"network_address = 'node-2'\")"


def listed(desk: Desk, number: int) -> list[str]:
    with desk.database.snapshot() as tx:
        (found,) = tx.reservations.access([desk.reservation(number).id]).values()
    return [each.text for each in found]


def test_one_who_may_not_use_all_that_is_reserved_is_refused(desk: Desk) -> None:
    add_rules(desk.database, ONLY_NODE_2, defaults=False)
    number = desk.granted("-d", "60", "-l", "nodes=2").number
    refused = desk.type(qralter.main, "-u", "alice,daemon", number)
    assert refused.exit == 1
    assert refused.err.startswith("Error: No queue instances to reserve\n  daemon: There are not enough resources")
    other = desk.granted("-d", "60", "-a", "+1h", "-l", "nodes=1").number
    text = "Error: No queue instances to reserve\n  daemon may not use all that is reserved\n"
    assert desk.type(qralter.main, "-u", "alice,daemon", other) == CommandResult(1, "", text)
    assert (listed(desk, number), listed(desk, other)) == (["alice"], ["alice"])


def test_one_who_may_use_all_that_is_reserved_is_added(desk: Desk) -> None:
    add_rules(desk.database, ONLY_NODE_2, defaults=False)
    number = desk.granted("-d", "60", "-h", "node-2", "-l", "nodes=1").number
    assert desk.type(qralter.main, "-u", "alice,daemon", number).exit == 0
    assert listed(desk, number) == ["alice", "daemon"]


def test_a_rule_that_refuses_one_is_quoted_and_those_who_stay_are_not_asked_again(desk: Desk) -> None:
    number = desk.granted("-d", "60", "-u", "alice,daemon").number
    add_rules(desk.database, "if user in ('daemon', 'root'):\n    reject('not he')", defaults=False)
    refused = desk.type(qralter.main, "-u", "alice,daemon,root", number)
    assert refused == CommandResult(1, "", "Error: No queue instances to reserve\n  root: not he\n")
    assert desk.type(qralter.main, "-u", "daemon", number).exit == 0
    assert listed(desk, number) == ["daemon"]

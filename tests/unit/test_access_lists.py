"""Who may use an advance reservation: its access list."""

import pytest

from oar.lib.base.errors import BadRequest
from oar.lib.reservations.permissions import Visitor, allows, parse_access_list

USERSETS = {"team": ["alice", "b*", "@physics"], "empty": []}


@pytest.mark.parametrize(
    ("entries", "visitor", "may"),
    [
        ("alice", Visitor("alice"), True),
        ("alice", Visitor("bob"), False),
        ("$user", Visitor("asker"), True),
        ("alice,bob", Visitor("bob"), True),
        ("student*", Visitor("student17"), True),
        ("student?", Visitor("student17"), False),
        ("user[12]", Visitor("user2"), True),
        ("@team", Visitor("alice"), True),
        ("@team", Visitor("bob"), True),
        ("@team", Visitor("carol", ["physics"]), True),
        ("@team", Visitor("carol", ["team"]), False),  # a userset hides the group of its name
        ("@empty", Visitor("alice"), False),
        ("@chemistry", Visitor("carol", ["chemistry"]), True),
        ("@chemistry", Visitor("chemistry"), False),
        ("%bio", Visitor("carol", project="bio"), True),
        ("%bio", Visitor("carol", project="art"), False),
        ("!bob", Visitor("alice"), True),
        ("!bob", Visitor("bob"), False),
        ("@team,!bob", Visitor("bob"), False),
        ("!%art,alice", Visitor("alice", project="art"), False),
        ("*,!@physics", Visitor("carol", ["physics"]), False),
        ("NONE", Visitor("root"), False),
        ("NONE", Visitor("NONE"), False),
    ],
)
def test_an_entry_allows_and_none_denies(entries: str, visitor: Visitor, may: bool) -> None:
    assert allows(parse_access_list(entries, "asker"), visitor, USERSETS) is may


@pytest.mark.parametrize("text", ["", ",", "a b", "a;b", "@", "%", "!", "@te*am", "x" * 300, "a'b", "\n"])
def test_what_is_no_entry_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_access_list(text, "asker")


def test_a_list_has_a_thousand_entries_at_most() -> None:
    assert len(parse_access_list(",".join(f"u{n}" for n in range(1000)), "asker")) == 1000
    with pytest.raises(BadRequest, match="more than 1000"):
        parse_access_list(",".join(f"u{n}" for n in range(1001)), "asker")

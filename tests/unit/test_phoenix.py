"""Decisions and commands of oar_phoenix."""

import pytest

from oar.lib.base.errors import ConfigError
from oar.lib.nodes.phoenix import (
    RebootCommand,
    RebootPolicy,
    Step,
    Tried,
    can_be_named,
    format_tried,
    next_step,
    parse_tried,
    plan,
)

NOW = 10_000
POLICY = RebootPolicy(has_soft=True, has_hard=True, soft_timeout=300, hard_timeout=600, most=20)


@pytest.mark.parametrize(
    ("last", "has", "step"),
    [
        (None, (True, True), Step.SOFT),
        (None, (False, True), Step.HARD),
        (Tried(Step.SOFT, NOW - 300), (True, True), None),
        (Tried(Step.SOFT, NOW - 301), (True, True), Step.HARD),
        (Tried(Step.SOFT, NOW - 301), (True, False), Step.GIVEN_UP),
        (Tried(Step.HARD, NOW - 600), (True, True), None),
        (Tried(Step.HARD, NOW - 601), (True, True), Step.GIVEN_UP),
        (Tried(Step.GIVEN_UP, 0), (True, True), None),
    ],
)
def test_each_step_follows_when_the_one_before_has_not_helped(
    last: Tried | None, has: tuple[bool, bool], step: Step | None
) -> None:
    assert next_step(last, POLICY._replace(has_soft=has[0], has_hard=has[1]), NOW) is step


def test_of_too_many_those_that_are_broken_for_longest_come_first() -> None:
    tried = {"n3": Tried(Step.SOFT, 0), "n4": Tried(Step.SOFT, 0), "n5": Tried(Step.HARD, 0)}
    decided = plan({"n1", "n2", "n3", "n4", "n5"}, tried, POLICY._replace(most=3), NOW)
    assert decided == (("n1",), ("n3", "n4"), ("n5",), 1)


def test_a_name_stands_in_a_word_of_its_own() -> None:
    command = RebootCommand("PHOENIX_SOFT_REBOOTCMD", "ssh 'admin@{NODENAME}' reboot --reason='a b'")
    assert command.words("n1") == ["ssh", "admin@n1", "reboot", "--reason=a b"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("reboot-all", "K must contain {NODENAME}, which is replaced by the node name."),
        ("echo '{NODENAME}", "K cannot be read: a quote is not closed."),
    ],
)
def test_commands_that_cannot_be_right(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RebootCommand("K", text)
    assert str(caught.value) == says


@pytest.mark.parametrize("name", ["-o", "a b", "$(x)", "a\nb", "", ".n", "n;x"])
def test_names_that_do_not_belong_in_a_command(name: str) -> None:
    assert not can_be_named(name)
    assert can_be_named("node-1.site_a.org")


def test_what_was_tried_is_read_as_it_was_written() -> None:
    assert parse_tried("") == {}
    tried = {"n1": Tried(Step.SOFT, 5), "12": Tried(Step.GIVEN_UP, 7)}
    assert parse_tried(format_tried(tried)) == tried

"""The text of oarsub --notify."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.lib.base.errors import BadRequest
from oar.lib.bus.messages import NoticeTag
from oar.lib.notifications.notices import mail_subject, parse_subscription


def test_a_mail_may_go_to_several_addresses_for_some_tags() -> None:
    subscription = parse_subscription("[end, START]MAIL:a@b.org,c.d+e@f-g.org")
    assert subscription.way == "mail"
    assert subscription.targets == ("a@b.org", "c.d+e@f-g.org")
    assert {tag for tag in NoticeTag if subscription.wants(tag)} == {NoticeTag.RUNNING, NoticeTag.END}


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("  [ RUNNING , end ] exec : /bin/tell  -v ", ("/bin/tell", "-v")),
        ("[START] Mail : a@b , c@d", ("a@b", "c@d")),
    ],
)
def test_blanks_and_case_do_not_matter(text: str, targets: tuple[str, ...]) -> None:
    subscription = parse_subscription(text)
    assert subscription.targets == targets
    assert subscription.wants(NoticeTag.RUNNING)


def test_of_an_array_each_job_may_be_asked_for() -> None:
    subscription = parse_subscription("[each, END]mail:a@b")
    assert (subscription.is_each, subscription.tags) == (True, frozenset({"END"}))
    assert parse_subscription("[EACH]mail:a@b").wants(NoticeTag.INFO)
    assert not parse_subscription("mail:a@b").is_each


def test_without_tags_everything_is_wanted() -> None:
    assert parse_subscription("mail:a@b").wants(NoticeTag.SUSPENDED)


def test_a_command_is_a_path_and_its_arguments() -> None:
    assert parse_subscription("exec:/home/a/tell.sh -v now").targets == ("/home/a/tell.sh", "-v", "now")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mail:",
        "mail:a@b\nBcc: x@y",
        "mail:a@b,",
        "mail:nobody",
        "exec:relative",
        "exec:/bin/sh -c 'x'",
        "exec:/bin/a;b",
        "exec:/bin/$(x)",
        "[WHEN]mail:a@b",
        "[]mail:a@b",
        "mail:a@b\n",
        "exec:",
        f"mail:{'a' * 250}@b",
        "smoke:signal",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_subscription(text)


@given(st.text(max_size=40))
def test_a_subject_is_one_line_whatever_the_job_is_called(name: str) -> None:
    assert mail_subject(NoticeTag.END, 3, name, "site").isprintable()

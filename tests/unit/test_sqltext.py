"""The first wall round SQL conditions of users: nothing that could get out of the parentheses passes."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.lib import sqltext
from oar.lib.errors import BadSql
from oar.lib.sqltext import normalise, tokenise

TEXT, INTEGER = "character varying", "integer"
COLUMNS = {"switch": TEXT, "network_address": TEXT, "cpuset": TEXT, "cpu": INTEGER, "mem": INTEGER, "Odd": TEXT}


@pytest.mark.parametrize(
    "text",
    [
        "cpu = 3",
        "network_address LIKE 'node-%' AND NOT (cpu IN (1, 2) OR mem BETWEEN 4 AND 8)",
        "switch ~ '^sw[0-9]+$' and switch is not null",
        "mem * 2 >= 1e3 and mem % 2 = 0 and mem::text <> '' and mem > -5",
        "cpu = ANY (ARRAY[1, 2, 3])",
        "lower(switch) = 'it''s; -- /* not a comment */ $1'",
        "cpu in (select cpu from resources group by cpu having count(*) > 2)",
        "network_address = 'nœud-é'",
        "(\n\tcpu = 1\n)",
        "cpu - 1 = - 1",
    ],
)
def test_a_condition_passes_as_it_is(text: str) -> None:
    assert normalise(text, COLUMNS) == text


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ('switch = "sw1"', "switch = 'sw1'"),
        ('"switch" = "sw1"', "\"switch\" = 'sw1'"),
        ('"Switch" = "sw1"', "'Switch' = 'sw1'"),
        ('"Odd" = "it\'s"', "\"Odd\" = 'it''s'"),
        ('switch = "a""b"', "switch = 'a\"b'"),
        ('switch = ""', "switch = ''"),
    ],
)
def test_double_quotes_round_anything_but_a_column_make_a_literal(text: str, sent: str) -> None:
    assert normalise(text, COLUMNS) == sent


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("cpuset = 3", "cpuset = '3'"),
        ("CPUSET<>3", "CPUSET<>'3'"),
        ("resources.cpuset = 3", "resources.cpuset = '3'"),
        ('"cpuset" = 3', "\"cpuset\" = '3'"),
        ("3 = cpuset", "'3' = cpuset"),
        ("3 = resources.cpuset", "'3' = resources.cpuset"),
        ("cpuset IN (0, 1,2)", "cpuset IN ('0', '1','2')"),
        ("cpuset not in (0, '1') or cpu = 2", "cpuset not in ('0', '1') or cpu = 2"),
        ("cpuset BETWEEN 1 AND 3 AND cpu = 3", "cpuset BETWEEN '1' AND '3' AND cpu = 3"),
        ("cpuset::int = 3", "cpuset::int = 3"),
        ("3 = cpuset::int", "3 = cpuset::int"),
        ("cast(cpuset as integer) = 3", "cast(cpuset as integer) = 3"),
        ("2 + 3 = cpuset", "2 + 3 = cpuset"),
        ("cpuset in (select 3)", "cpuset in (select 3)"),
        ("cpu = 3", "cpu = 3"),
    ],
)
def test_a_number_compared_with_a_column_of_text_is_quoted(text: str, sent: str) -> None:
    assert normalise(text, COLUMNS) == sent


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        ("1=1; DELETE FROM jobs", "';' is not allowed"),
        ("1=1 -- and drain='NO'", "'--' is not allowed"),
        ("1=1--1", "'--' is not allowed"),
        ("1=1 +-- x", "'--' is not allowed"),
        ("1=1 /* x", "'/*' is not allowed"),
        ("1=1 +/* x", "'/*' is not allowed"),
        ("$$a$$ = 'a'", "'$' is not allowed"),
        ("cpu = $1", "'$' is not allowed"),
        ("a$b = 1", "'$' is not allowed"),
        ("1=1) OR (1=1", "a ')' has no '('"),
        ("(1=1", "a '(' is not closed"),
        ("switch = 'sw1", "a quote is not closed"),
        ("switch = 'sw1''", "a quote is not closed"),
        ('switch = "sw1', "a quote is not closed"),
        (r"switch = 'a\'", "a backslash is not allowed"),
        ("switch = E'x'", "strings that begin with E are not allowed"),
        ("switch = e'x'", "strings that begin with E are not allowed"),
        ('switch = e"x"', "strings that begin with E are not allowed"),
        ("switch = 'a'\"b\"", "two strings are glued together"),
        ("cpuset = 3'x'", "something is glued to the number 3"),
        ("switch = U&'x'", "strings that begin with U are not allowed"),
        ('u&"switch" = 1', "strings that begin with U are not allowed"),
        ("1e'x' = 1", "something is glued to the number 1"),
        ("1u&'x' = 1", "something is glued to the number 1"),
        ("switch = 'a\0'", "control character 0"),
        ("cpu = 1\r", "control character 13"),
        ("cpu = 1\x7f", "control character 127"),
        ("cpu = 1\x85", "control character 133"),
        ("switch = '\udcff'", "it is not UTF-8 text"),
        ("cpu = {1}", "unexpected character '{'"),
        ("pg_sleep(5) IS NULL", "'pg_sleep' is not allowed"),
        ("pg_catalog.set_config('a', 'b', false) = ''", "'pg_catalog' is not allowed"),
        ("SET_CONFIG('a', 'b', false) = ''", "'set_config' is not allowed"),
        ("current_setting('a') = ''", "'current_setting' is not allowed"),
        ("nextval('s') > 0", "'nextval' is not allowed"),
        ("lo_import('/etc/passwd') > 0", "'lo_import' is not allowed"),
        ("dblink_connect('x') = ''", "'dblink_connect' is not allowed"),
        ("query_to_xml('select 1', true, true, '') is null", "'query_to_xml' is not allowed"),
        ("a" * 16385, "it is longer than 16384 characters"),
    ],
)
def test_what_could_get_out_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadSql) as caught:
        normalise(text, COLUMNS)
    assert str(caught.value) == f"invalid SQL condition: {reason}"


@given(st.text(alphabet="ab1'\"(),;-/*$\\ eEuU&\n=.:<>é\0", max_size=40))
def test_what_passes_holds_nothing_outside_its_literals(text: str) -> None:
    """Whatever the mixture, the text that would be sent stays inside the parentheses that are put round it."""
    try:
        sent = normalise(text, COLUMNS)
    except BadSql:
        return
    depth, inside = 0, ""
    for character in sent:
        if inside:
            inside = "" if character == inside else inside
        elif character in "'\"":
            inside = character
        else:
            assert character not in ";$\\\0"
            depth += (character == "(") - (character == ")")
            assert depth >= 0
    assert (depth, inside) == (0, "")


@given(st.text(max_size=200))
def test_any_text_is_refused_in_one_line_or_kept_whole(text: str) -> None:
    try:
        answer = "".join(token.text for token in tokenise(text))
    except BadSql as error:
        answer = str(error)
    assert answer == text or (answer.startswith("invalid SQL condition: ") and "\n" not in answer)


@given(st.text(alphabet=st.characters(exclude_characters='\\"', exclude_categories=["C"]), max_size=30))
def test_any_text_in_double_quotes_becomes_one_literal(text: str) -> None:
    if text in COLUMNS:
        return
    (token,) = tokenise(normalise(f'"{text}"', COLUMNS))
    assert (token.kind, token.text[1:-1].replace("''", "'")) == ("literal", text)


def test_the_example_of_the_documentation() -> None:
    assert doctest.testmod(sqltext).failed == 0

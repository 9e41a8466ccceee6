"""The language of conditions: what people write is understood, and nothing else reaches a server."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.lib.base.errors import BadCondition
from oar.lib.conditions import bounds
from oar.lib.conditions.parser import ConditionTable, ParsedCondition, parse
from oar.lib.conditions.sql import Mask, Statement, joined, statement
from oar.lib.conditions.tokens import tokenise
from oar.lib.conditions.tree import FUNCTIONS, Column, Node, Operation, Text, parts
from tests.conditions_corpus import ACCEPTED, COLUMNS, HOSTILE

TEXT, INTEGER = "character varying", "integer"
TYPES = {"switch": TEXT, "network_address": TEXT, "cpuset": TEXT, "cpu": INTEGER, "mem": INTEGER, "Odd": TEXT}
TABLE = ConditionTable("resources", TYPES, may_select=True)
RESOURCES = ConditionTable("resources", COLUMNS, may_select=True)


def normal(text: str) -> str:
    return parse(text, TABLE).text


def refusal(text: str, table: ConditionTable = TABLE) -> str:
    with pytest.raises(BadCondition) as caught:
        parse(text, table)
    return str(caught.value)


def sql(text: str, mask: Mask | None = None) -> Statement:
    return statement(parse(text, TABLE).tree, "resources", 100, mask)


@pytest.mark.parametrize("text", ACCEPTED)
def test_what_sites_write_is_understood(text: str) -> None:
    condition = parse(text, RESOURCES)
    assert parse(condition.text, RESOURCES).text == condition.text


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:40]))
def test_what_could_do_harm_is_refused_in_one_line(text: str) -> None:
    message = refusal(text, RESOURCES)
    assert message.startswith("invalid SQL condition: ")
    assert "\n" not in message
    assert len(message) < 400


@pytest.mark.parametrize(
    "text",
    [
        "cpu = 3",
        "network_address LIKE 'node-%' AND NOT (cpu IN (1, 2) OR mem BETWEEN 4 AND 8)",
        "mem * 2 >= 1e3 and mem % 2 = 0 and mem::text <> '' and mem > -5",
        "lower(switch) = 'it''s; -- /* not a comment */ $1'",
        "cpu in (select cpu from resources group by cpu having count(*) > 2)",
        "(\n\tcpu = 1\n)",
        "cpuset::int = 3",
        "2 + 3 = cpuset",
        "cpu = 3 is not true",
    ],
)
def test_a_condition_is_kept_as_it_was_written(text: str) -> None:
    assert normal(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('switch = "sw1"', "switch = 'sw1'"),
        ('"switch" = "sw1"', "\"switch\" = 'sw1'"),
        ('"Switch" = "sw1"', "'Switch' = 'sw1'"),
        ('"Odd" = "it\'s"', "\"Odd\" = 'it''s'"),
        ('switch = "a""b"', "switch = 'a\"b'"),
        ('switch = ""', "switch = ''"),
    ],
)
def test_double_quotes_round_anything_but_a_column_make_a_text(text: str, expected: str) -> None:
    assert normal(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpuset = 3", "cpuset = '3'"),
        ("CPUSET<>3", "CPUSET<>'3'"),
        ("resources.cpuset = 3", "resources.cpuset = '3'"),
        ('"cpuset" = 3', "\"cpuset\" = '3'"),
        ("3 = cpuset", "'3' = cpuset"),
        ("cpuset IN (0, 1,2)", "cpuset IN ('0', '1','2')"),
        ("cpuset not in (0, '1') or cpu = 2", "cpuset not in ('0', '1') or cpu = 2"),
        ("cpuset BETWEEN 1 AND 3 AND cpu = 3", "cpuset BETWEEN '1' AND '3' AND cpu = 3"),
        ("cast(cpuset as integer) = 3", "cast(cpuset as integer) = 3"),
        ("cpu = 3", "cpu = 3"),
    ],
)
def test_a_number_compared_with_a_column_of_text_is_a_text(text: str, expected: str) -> None:
    assert normal(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("1=1; DELETE FROM jobs", "';' is not allowed at character 4"),
        ("1=1 -- and drain='NO'", "'--' is not allowed at character 5"),
        ("1=1) OR (1=1", "a ')' has no '(' at character 4"),
        ("(1=1", "a '(' is not closed"),
        ("switch = 'sw1", "a quote is not closed at character 10"),
        (r"switch = 'a\'", "a backslash is not allowed at character 12"),
        ("switch = E'x'", "strings that begin with E are not allowed at character 10"),
        ("switch = 'a'\"b\"", "an operator is missing between two strings at character 13"),
        ("cpuset = 3'x'", "a blank is missing after the number 3 at character 11"),
        ("switch = 'a\0'", "control character 0 at character 12"),
        ("nothing = 1", 'unknown column "nothing" at character 1'),
        ("swich = 'a'", 'unknown column "swich" at character 1, did you mean "switch"?'),
        ("switch = node-1", 'unknown column "node" at character 10, use single quotes for a text'),
        ("cpu = 1 AND now() > 2", f"unknown function now at character 13 (known: {', '.join(FUNCTIONS)})"),
        ("abs(1, 2) = 1", "abs does not take 2 arguments at character 1"),
        ("cpu = (SELECT 1)", "unexpected SELECT at character 8"),
        ("cpu::date = 1", "unknown type date at character 6 (known: bigint, int, int4, int8, integer, numeric, text, "
         "varchar)"),
        ("cpu = 1 cpu", "unexpected cpu at character 9"),
        ("cpu =", "it ends where a value is expected"),
        ("cpu between 1 or 2", "unexpected or, expected 'and' at character 15"),
        ("switch like cpuset", "LIKE requires a pattern in quotes at character 13"),
        ("a" * 16385, "it is longer than 16384 characters"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_thing_and_its_position(text: str, reason: str) -> None:
    assert refusal(text) == f"invalid SQL condition: {reason}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu = 1 or cpu = 2 and mem = 3", '(("cpu" = 1) OR (("cpu" = 2) AND ("mem" = 3)))'),
        ("not cpu = 1 and mem = 2", '((NOT ("cpu" = 1)) AND ("mem" = 2))'),
        ("cpu + 1 * 2 = - 3", '(("cpu" + (1 * 2)) = (- 3))'),
        ("cpu - 1 - 1 = 0", '((("cpu" - 1) - 1) = 0)'),
        ("cpu = 1 is not null", '(("cpu" = 1) IS NOT NULL)'),
        ("cpu % 2 = 0", '(mod("cpu", 2) = 0)'),
        ("-cpu::bigint < 0", '((- CAST("cpu" AS bigint)) < 0)'),
        ("cpu between 1 and 2 and mem = 3", '(("cpu" BETWEEN 1 AND 2) AND ("mem" = 3))'),
        ("cpu != 1", '("cpu" <> 1)'),
        ("switch || cpuset = 'ab'", '((left("switch"::text, 100) || left("cpuset"::text, 100)) = %s)'),
    ],
)
def test_operators_bind_as_in_postgresql(text: str, expected: str) -> None:
    assert sql(text).text == expected


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "^(dahu|yeti)$",
            "^node-[0-9]+$",
            "(SSD|NVMe)+",
            "a+b*c?",
            "(a+)?",
            "(ab?c){3}",
            "[[:alpha:]]+-[^]]*",
            ".*?x",
        ),
        *("^(?:a|b)", "x{2,3}?", "(a+)(b+)", "[(+*)]+", "a{255}b{250}", "(node-[0-9]+)?-site"),
    ],
)
def test_patterns_that_cost_little_are_taken(pattern: str) -> None:
    assert normal(f"switch ~ '{pattern}'")


@pytest.mark.parametrize("pattern", ["[[:a:]" * 42, "[[:" + ":][:" * 60, "[" * 256, "(" * 256, "(?:" * 85, "a{" * 128])
def test_a_pattern_is_read_in_no_time(pattern: str) -> None:
    begin = time.process_time()
    understood(f"switch ~ '{pattern}'")
    assert time.process_time() - begin < 0.5


def test_substring_takes_a_pattern_that_costs_little_and_else_numbers() -> None:
    assert sql("substring(switch from '[0-9]+')::int > 3").text == '(CAST(substring("switch", %s) AS integer) > 3)'
    assert sql("substring(switch, 1, 4) = 'a'").text == '(substr("switch", 1, 4) = %s)'
    assert sql("substring(switch, cpuset) = 'a'").text == '(substr("switch", "cpuset") = %s)'


def test_what_is_put_together_is_cut_wherever_it_comes_from() -> None:
    assert sql("lower(switch) || 'x' = 'ax'").text == '((left(lower("switch")::text, 100) || %s) = %s)'
    expected = '(replace(left(lower("switch")::text, 100), %s, %s) = %s)'
    assert sql("replace(lower(switch), 'a', 'b') = ''").text == expected


def test_many_numbers_make_no_long_text() -> None:
    assert normal(" + ".join(["cpu"] * 90) + " > 0")
    assert normal("cpu || '-' || mem || '-' || cpu::text = '1-2-1'")


def test_texts_are_parameters() -> None:
    assert sql("switch in ('a', \"b\") and cpuset = 3") == Statement(
        '(("switch" IN (%s, %s)) AND ("cpuset" = %s))', ("a", "b", "3")
    )


def test_hidden_columns_are_those_of_the_asker_only() -> None:
    mask = Mask("switch", "alice", {"cpuset"})
    assert sql("cpuset = 'x'", mask) == Statement('((CASE WHEN "switch" = %s THEN "cpuset" END) = %s)', ("alice", "x"))


def test_conditions_are_joined_in_parentheses() -> None:
    assert joined([sql("cpu = 1"), sql("switch = 'a'")]) == Statement('(("cpu" = 1)) AND (("switch" = %s))', ("a",))
    assert joined([]).text == "true"


def test_subqueries_belong_to_tables_that_allow_them() -> None:
    text = "cpu in (select cpu from resources where mem > 1)"
    assert refusal(text, TABLE._replace(may_select=False)).endswith("a subquery is not allowed here at character 9")
    assert sql(text).text == '("cpu" IN (SELECT "cpu" FROM resources WHERE ("mem" > 1)))'


def test_a_long_list_is_one_part() -> None:
    values = ", ".join(map(str, range(2000)))
    assert len(sql(f"cpu in ({values})").text) > 2000


def understood(text: str) -> ParsedCondition | None:
    """Return the condition of a text, None if it is refused; in one line then."""
    try:
        return parse(text, TABLE)
    except BadCondition as error:
        message = str(error)
    assert "\n" not in message
    return None


def size(node: Node) -> int:
    return 1 + sum(map(size, parts(node)))


names = st.sampled_from([*TYPES, "nothing"])
leaves = st.one_of(names, st.integers(0, 99).map(str), st.sampled_from(["'a'", "null", "true", "1.5", '"b"']))


def composed(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["=", "<", "and", "or", "+", "||", "%", "in", "like", "is", "between", "~", "::"])
    return st.one_of(
        st.tuples(parts, operators, parts).map(" ".join),
        parts.map(lambda part: f"({part})"),
        st.tuples(st.sampled_from([*FUNCTIONS, "repeat"]), parts).map(lambda pair: f"{pair[0]}({pair[1]})"),
        st.tuples(parts, parts).map(lambda pair: f"{pair[0]} in ({pair[1]}, {pair[0]})"),
        parts.map(lambda part: f"not {part}"),
    )


@given(st.recursive(leaves, composed, max_leaves=12))
def test_any_sentence_is_refused_in_one_line_or_has_a_tree_within_the_limits(text: str) -> None:
    condition = understood(text)
    if condition is None:
        return
    assert size(condition.tree) <= 3 * bounds.MOST_NODES
    again = parse(condition.text, TABLE)
    assert statement(again.tree, "resources", 9) == statement(condition.tree, "resources", 9)


@given(st.text(alphabet="ab1'\"(),;-/*$\\ eEuU&\n=.:<>é\0", max_size=40))
def test_what_passes_holds_nothing_outside_its_texts(text: str) -> None:
    """Whatever the mixture, the statement is made of columns, numbers, marks and operators."""
    try:
        written = statement(parse(text, TABLE).tree, "resources", 9)
    except BadCondition:
        return
    assert not set(written.text) & set(";$\\\0'")
    assert written.text.count("%s") == len(written.parameters)


@given(st.text(max_size=200))
def test_any_text_is_refused_or_cut_into_its_own_parts(text: str) -> None:
    try:
        tokens = tokenise(text)
    except BadCondition:
        return
    assert all(text[token.start : token.stop] == token.text for token in tokens)


@given(st.text(alphabet=st.characters(exclude_characters='\\"', exclude_categories=["C"]), max_size=30))
def test_any_text_in_double_quotes_becomes_one_text(text: str) -> None:
    if text in TYPES:
        return
    assert parse(f'switch = "{text}"', TABLE).tree == Operation("=", (Column("switch"), Text(text)))

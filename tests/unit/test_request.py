"""The resource language: what is read, what is refused and with which words, and the way back to text."""

import contextlib
import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.lib.base.errors import BadRequest
from oar.lib.jobs.records import Group, Level, Memory, Moldable
from oar.lib.jobs.states import JobTypeName
from oar.lib.submission import resource_request
from oar.lib.submission.resource_request import (
    ALL,
    BEST,
    BEST_HALF,
    EXAMPLE,
    MOST_GROUPS,
    MOST_LEVELS,
    JobTypes,
    ResourceRequest,
    TypeText,
    parse_request,
    parse_type,
)


def group(*levels: tuple[str, int], where: str = "") -> Group:
    return Group(where, tuple(Level(name, quantity) for name, quantity in levels))


@pytest.mark.parametrize(
    ("text", "groups", "walltime"),
    [
        ("nodes=2", (group(("nodes", 2)),), None),
        ("/nodes=2/core=4,walltime=1:30", (group(("nodes", 2), ("core", 4)),), 5400),
        (
            "/switch=1/node=2+{gpu='YES'}/host=1/gpu=2,walltime=0:45:00",
            (group(("switch", 1), ("node", 2)), group(("host", 1), ("gpu", 2), where="gpu='YES'")),
            2700,
        ),
        ("walltime=3", (), 10800),
        ("{mem > 64},walltime=2:00", (group(where="mem > 64"),), 7200),
        ("{cluster IN ('a','b')}/host=ALL", (group(("host", ALL), where="cluster IN ('a','b')"),), None),
        ("/switch=BEST/host=4", (group(("switch", BEST), ("host", 4)),), None),
        ("walltime=50:30:00,/node=10/cpu=3,walltime=2:15:00", (group(("node", 10), ("cpu", 3)),), 8100),
        ("walltime=1,/node=1", (group(("node", 1)),), 3600),
        ("{mem>64}core=2", (group(("core", 2), where="mem>64"),), None),
        ("{name = 'a}b+c,d/e'}/core=2", (group(("core", 2), where="name = 'a}b+c,d/e'"),), None),
        ("{a = 'it''s }'}/core=1", (group(("core", 1), where="a = 'it''s }'"),), None),
        ('{"odd}name" = 1}/core=1', (group(("core", 1), where='"odd}name" = 1'),), None),
        ("nodes=1,core=2", (group(("nodes", 1)), group(("core", 2))), None),
        (" / nodes = 2 / core = all , walltime = 1 ", (group(("nodes", 2), ("core", ALL)),), 3600),
        ("core=HALF_BEST", (group(("core", BEST_HALF)),), None),
        ("core=BESTHALF", (group(("core", BEST_HALF)),), None),
        ("walltime=0:90", (), 5400),
    ],
)
def test_what_is_accepted(text: str, groups: tuple[Group, ...], walltime: int | None) -> None:
    assert parse_request(text) == ResourceRequest(groups, walltime)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("/core=2/", "core=2"),
        ("//core=2//,walltime=1", "core=2,walltime=1"),
        ("/nodes=1/core=2/+{a}/lic=1/", "nodes=1/core=2+{a}/lic=1"),
        ("nodes=1++core=2", "nodes=1+core=2"),
        ("+nodes=1", "nodes=1"),
        ("++{a}nodes=1", "{a}nodes=1"),
        (",nodes=1,,walltime=2", "nodes=1,walltime=2"),
        (",walltime=2", "walltime=2"),
        ("walltime=2:", "walltime=2"),
        ("walltime=:30", "walltime=0:30"),
        ("walltime=1:30:", "walltime=1:30"),
        ("walltime=::45", "walltime=0:0:45"),
    ],
)
def test_loose_forms_that_oar_2_5_takes(text: str, plain: str) -> None:
    assert parse_request(text) == parse_request(plain)


@pytest.mark.parametrize(
    ("text", "walltime"),
    [
        ("walltime=best", None),
        ("walltime = BEST : 1:30", 5400),
        ("core=1,walltime=best:2", 7200),
        ("walltime=best,core=1", None),
    ],
)
def test_a_walltime_that_may_grow(text: str, walltime: int | None) -> None:
    request = parse_request(text)
    assert (request.walltime, request.grows) == (walltime, True)
    assert not parse_request(f"{text},walltime=1" if text == "walltime=best,core=1" else "walltime=1").grows


@pytest.mark.parametrize("level", ["nodes", "nodes=", "=3", "nodes=2x", "nodes=-1", "nodes=0", "no des=1", "x=FOO"])
def test_a_bad_level_is_named(level: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_request(f"/core=1/{level}")
    assert str(caught.value) == f"cannot recognize the resource description: {level}\n# {EXAMPLE}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("core=2}x", "cannot recognize -- }x -- resource"),
        ("{a=1}{b=2}/core=1", "cannot recognize the resource description: {a=1}{b=2}/core=1"),
        ("{mem > 1", "cannot recognize -- {mem > 1 -- resource"),
        ("core=1,walltime=1,core=2", "cannot recognize -- ,core=2 -- resource"),
        (
            "walltime=1:xx",
            'cannot recognize walltime resource value\n# "1:xx" is not a walltime: write h[:m[:s]], 90m or 1d12h',
        ),
        ("walltime=", "cannot recognize walltime resource value"),
        (
            "core=1,walltime=better",
            'cannot recognize walltime resource value\n# "better" is not a walltime: write h[:m[:s]], 90m or 1d12h',
        ),
        ("core=1+walltime=2", "cannot recognize the resource description: walltime=2"),
        ("core=1,", "cannot recognize the resource description: core=1,"),
        ("core=1//cpu=1", "cannot recognize the resource description: core=1//cpu=1"),
        ("/", "cannot recognize the resource description: /"),
        ("core=1,+core=1", "cannot recognize the resource description: core=1,+core=1"),
        (
            "core=1,walltime=1:2:3:4",
            'cannot recognize walltime resource value\n# "1:2:3:4" is not a walltime: write h[:m[:s]], 90m or 1d12h',
        ),
        (
            "walltime=:",
            'cannot recognize walltime resource value\n# ":" is not a walltime: write h[:m[:s]], 90m or 1d12h',
        ),
        ("", "cannot recognize the resource description: "),
        ("walltime=1,", "cannot recognize the resource description: walltime=1,"),
        ("core=99999999999", "cannot recognize the resource description: core=99999999999"),
        ("core=1,walltime=0", "walltime must be greater than 0"),
        ("+".join(["core=1"] * 1001), 'more than 1000 parts are joined with "+": use levels, or several jobs'),
        ("/".join(["core=1"] * 17), 'more than 16 levels are joined with "/": name each property once'),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_request(text)
    hint = f"\n# {EXAMPLE}" if "resource description" in message else ""
    assert str(caught.value) == message + hint


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name != "walltime")
quantities = st.integers(1, 2**31 - 1) | st.sampled_from([ALL, BEST, BEST_HALF])
levels = st.lists(st.builds(Level, names, quantities), min_size=1, max_size=3).map(tuple)
filters = st.sampled_from(["", "mem > 64", "a = '}{,+/='", "(x IN ('a', 'b')) AND type = 'default'"])
requests = st.builds(
    ResourceRequest,
    st.lists(st.builds(Group, filters, levels), min_size=1, max_size=3).map(tuple),
    st.none() | st.integers(1, 10**6),
    st.just(False),  # a job that grows is told by its type
    st.none() | st.builds(Memory, st.integers(1, 2**40), st.booleans(), st.just(False)),  # no text names a default
)


@given(requests)
def test_text_of_a_request_reads_back_as_the_same_request(asked: ResourceRequest) -> None:
    (text,) = resource_request.texts_of([asked])
    assert parse_request(text, with_memory=True) == asked


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("core=2,mem=8G", Memory(8192)),
        ("core=2,walltime=1:0,mem=1.5GiB", Memory(1536)),
        ("mem_per_core=500M,walltime=1:0,core=2", Memory(500, is_per_core=True)),
        ("mem=1T", Memory(1 << 20)),
        ("core=2/mem=8", None),
        ("core=2+mem=8", None),
    ],
)
def test_memory_is_behind_a_comma(text: str, memory: Memory | None) -> None:
    assert parse_request(text, with_memory=True).memory == memory


@pytest.mark.parametrize("value", ["8", "8X", "-1G", "0G", "G", "", "1e3G", "٣G", "9999999999999T", "1.5.5G", "8G8"])
def test_what_is_no_size_of_memory_is_refused_with_its_name(value: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_request(f"core=1,mem={value}", with_memory=True)
    assert f'"{value}" is not a size of memory' in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_the_key_mem_is_a_property() -> None:
    (asked,) = [parse_request("core=1,mem=8")]
    assert (asked.memory, asked.groups[1].levels) == (None, (Level("mem", 8),))


def test_memory_is_given_once() -> None:
    with pytest.raises(BadRequest, match="cannot recognize"):
        parse_request("core=1,mem=8G,mem=1G", with_memory=True)
    with pytest.raises(BadRequest, match="memory is given twice"):
        parse_request("mem=8G,core=1,mem=1G", with_memory=True)


@given(st.text(max_size=40))
def test_any_text_is_either_read_or_refused(text: str) -> None:
    with contextlib.suppress(BadRequest):
        assert isinstance(parse_request(text), ResourceRequest)


def test_nodes_stand_for_the_property_of_the_site() -> None:
    asked = (group(("nodes", 2), ("core", 1)),)
    assert resource_request.name_nodes(asked, ["core"], "host") == (group(("host", 2), ("core", 1)),)


def test_a_column_named_node_wins_over_the_alias() -> None:
    asked = (group(("node", 2)),)
    assert resource_request.name_nodes(asked, ["node"], "host") == asked


def test_wanted_resources_show_every_alternative() -> None:
    first = Moldable(1, 1, 7200, (group(("network_address", 1), ("core", BEST), where="type = 'default'"),))
    second = Moldable(2, 1, 60, (group(("core", 2)), group(("lic", 1), where="a")))
    assert resource_request.format_wanted_resources([first, second]) == (
        '-l "{type = \'default\'}/network_address=1/core=BEST,walltime=2:0:0" -l "/core=2+{a}/lic=1,walltime=0:1:0" '
    )


def test_types_have_a_name_and_a_value() -> None:
    assert parse_type("timesharing=user,*") == TypeText("timesharing", "user,*")
    assert parse_type("use_placeholder=x") == TypeText("allowed", "x")
    assert parse_type("origin=a=b:c") == TypeText("origin", "a=b:c")


def test_types_of_a_job_answer_questions() -> None:
    types = JobTypes(["noop=standby", "token:a=1", "token:b=2", "state=permissive"])
    assert JobTypeName.NOOP in types
    assert JobTypeName.DEPLOY not in types
    assert types.is_standby
    assert types.is_permissive
    assert types.values(JobTypeName.TOKEN) == ("a=1", "b=2")
    assert types.names == ("noop", "state", "token")


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(resource_request).failed == 0


def test_the_largest_request_is_read() -> None:
    group = "/".join(f"p{number}=1" for number in range(MOST_LEVELS))
    request = parse_request("+".join([group] * MOST_GROUPS))
    assert (len(request.groups), len(request.groups[-1].levels)) == (MOST_GROUPS, MOST_LEVELS)

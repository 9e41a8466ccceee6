"""Machine formats: their layouts letter for letter, and that they can be read back whatever is in them."""

import json
from collections.abc import Iterator
from json.encoder import encode_basestring
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some

from oar.lib.base.formats import Format, RecordTable, RecordTables, dump, pieces
from tests.plain import as_texts, read_perl, read_xml

JOB = {
    "12": {
        "name": "it's",
        "state": "Running",
        "walltime": 3600,
        "exit_code": None,
        "karma": 0.5,
        "types": [],
        "resources": [1, 2],
        "events": [{"type": "WALLTIME", "date": 5}],
    }
}

#: What many records have in common.
COMMON = {f"field {number}": "the same in each" for number in range(40)}

texts = some.text(some.characters(exclude_categories=["Cs"]), max_size=20)
#: What XML can hold: no control characters, and no code points that are no characters.
printable = some.text(some.characters(exclude_categories=["Cs", "Cc", "Cn"]), max_size=20)


def plain(texts: some.SearchStrategy[str]) -> some.SearchStrategy[Any]:
    """Plain values with such texts in them."""
    numbers = some.integers() | some.floats(allow_nan=False, allow_infinity=False)
    return some.recursive(
        some.none() | some.booleans() | numbers | texts,
        lambda inner: some.lists(inner, max_size=4) | some.dictionaries(texts, inner, max_size=4),
        max_leaves=20,
    )


values = plain(texts)


def test_json_is_indented_by_three_with_blanks_round_the_colon() -> None:
    assert (
        dump(JOB, Format.JSON)
        == """\
{
   "12" : {
      "name" : "it's",
      "state" : "Running",
      "walltime" : 3600,
      "exit_code" : null,
      "karma" : 0.5,
      "types" : [],
      "resources" : [
         1,
         2
      ],
      "events" : [
         {
            "type" : "WALLTIME",
            "date" : 5
         }
      ]
   }
}
"""
    )


def test_yaml_is_block_style() -> None:
    assert (
        dump({12: {"name": "it's", "state": "Running", "events": [{"type": "A", "date": 5}, [1]]}}, Format.YAML)
        == """\
---
12:
  name: 'it''s'
  state: Running
  events:
    - type: A
      date: 5
    - - 1
"""
    )
    assert dump({12: None, "7": [], "a": {}}, Format.YAML) == "---\n12: ~\n'7': []\na: {}\n"


def test_xml_has_one_scalar_item_per_line() -> None:
    assert (
        dump({"12": {"state": "Running", "name": None, "types": ["a<b"]}}, Format.XML)
        == """\
<?xml version="1.0"?>
<perldata>
 <hashref memory_address="0x8">
  <item key="12">
   <hashref memory_address="0x10">
    <item key="state">Running</item>
    <item key="name" defined="false"></item>
    <item key="types">
     <arrayref memory_address="0x18">
      <item key="0">a&lt;b</item>
     </arrayref>
    </item>
   </hashref>
  </item>
 </hashref>
</perldata>
"""
    )


def test_dumper_is_a_perl_literal() -> None:
    value = {"12": {"name": "it's \\", "n": 3, "none": None, "types": [], "list": ["a"], "k": 0.5}}
    assert dump(value, Format.DUMPER, one_line=True) == (
        r"{'12' => {'name' => 'it\'s \\','n' => 3,'none' => undef,'types' => [],'list' => ['a'],'k' => '0.5'}}" + "\n"
    )
    assert (
        dump({"12": {"state": "Running", "types": ["a", "b"]}}, Format.DUMPER)
        == """\
{
  '12' => {
    'state' => 'Running',
    'types' => [
      'a',
      'b'
    ]
  }
}
"""
    )


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        (Format.JSON, "{}\n"),
        (Format.YAML, "--- {}\n"),
        (Format.DUMPER, "{}\n"),
        (Format.XML, '<?xml version="1.0"?>\n<perldata>\n <hashref memory_address="0x8">\n </hashref>\n</perldata>\n'),
    ],
)
def test_nothing_is_an_empty_document(format: Format, expected: str) -> None:
    assert dump({}, format) == expected


@pytest.mark.parametrize("text", ["YES", "no", "12", "1:30", "2031-03-04", "~", "", " a", "a: b", "a #b", "null", ".5"])
def test_a_text_that_yaml_would_read_as_something_else_is_quoted(text: str) -> None:
    assert yaml.safe_load(dump({"a": text}, Format.YAML)) == {"a": text}
    assert dump({"a": text}, Format.YAML) == f"---\na: '{text}'\n"


@pytest.mark.parametrize("text", ["R=2,W=2:0:0,J=B (Karma=0.1)", "/home/eve/a.out", "n-1.site"])
def test_ordinary_texts_stay_plain_in_yaml(text: str) -> None:
    assert dump({"a": text}, Format.YAML) == f"---\na: {text}\n"
    assert yaml.safe_load(dump({"a": text}, Format.YAML)) == {"a": text}


@given(values)
def test_json_can_be_read_back(value: Any) -> None:
    assert json.loads(dump(value, Format.JSON)) == value


@given(some.data(), some.lists(texts | some.integers(), min_size=1, max_size=4, unique_by=str), some.booleans())
def test_records_with_the_same_keys_are_written_as_if_each_stood_alone(
    data: some.DataObject, keys: list[str | int], has_another: bool
) -> None:
    """Values that are equal, and are not the same text; what a pattern of a text could trip over."""
    value = some.sampled_from(
        [1, True, 1.0, 0, 0.0, -0.0, None, "a", "%s", "100%%", "é", [], (), [1], [True], {}, {"a": 1}]
    )
    rows: list[Any] = data.draw(some.lists(some.fixed_dictionaries(dict.fromkeys(keys, value)), min_size=4, max_size=9))
    rows += [data.draw(values), *rows] if has_another else []
    expected = json.dumps(rows, indent=3, separators=(",", " : "), ensure_ascii=False)
    assert dump(rows, Format.JSON) == expected + "\n"


def test_what_records_have_in_common_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand jobs of an array differ in few of their fifty fields."""
    written: list[str] = []

    def count(text: str) -> str:
        written.append(text)
        return encode_basestring(text)

    monkeypatch.setattr("oar.lib.base.formats.quoted_json", count)
    records = [{"id": number, "file": f"OAR.{number}.stdout", **COMMON} for number in range(1000)]
    assert json.loads(dump(records, Format.JSON)) == records
    assert len(written) < 1.5 * len(records)


class Tables(RecordTables):
    """Records in tables."""

    def __init__(self, tables: list[RecordTable]) -> None:
        self._tables = tables
        self._records = {key: record for table in tables for key, record in table.items()}

    def __getitem__(self, key: int) -> dict[str, object]:
        return self._records[key]

    def __iter__(self) -> Iterator[int]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def tables(self) -> Iterator[RecordTable]:
        """Yield the tables."""
        yield from self._tables


@some.composite
def tables(draw: some.DrawFn) -> Tables:
    """Tables with columns whose values differ, are equal, or are the same objects as those of another column."""
    plain_values: list[Any] = [1, True, 1.0, 0.0, -0.0, None, "a", "%s", {}, {"a": 1}]
    alike = some.sampled_from([*plain_values, (), [], ("a",), ("a", 1), (True,)])
    made, next_id = [], 1
    for rows in draw(some.lists(some.integers(1, 5), max_size=3)):
        column = some.lists(alike, min_size=rows, max_size=rows) | some.lists(values, min_size=rows, max_size=rows)
        columns = draw(some.dictionaries(texts, column | column.map(tuple), min_size=1, max_size=4))
        made.append(RecordTable(range(next_id, next_id + rows), columns | {"once more": next(iter(columns.values()))}))
        next_id += rows
    return Tables(made)


@given(tables())
def test_records_in_tables_are_written_as_if_each_stood_alone(records: Tables) -> None:
    plain = {str(key): records[key] for key in records}
    expected = json.dumps(plain, indent=3, separators=(",", " : "), ensure_ascii=False)
    assert dump(records, Format.JSON) == expected + "\n"
    for format in Format:
        assert dump(records, format) == dump({key: records[key] for key in records}, format)


def test_the_text_of_records_in_tables_is_never_there_all_at_once() -> None:
    records = Tables([RecordTable([start, start + 1], {"n": [1, 2]}) for start in range(0, 10, 2)])
    text = list(pieces(records, Format.JSON))
    assert max(map(len, text)) < 2 * len("".join(text)) / len(records.keys())
    assert "".join(text) == dump(records, Format.JSON)


@given(values)
def test_yaml_can_be_read_back(value: Any) -> None:
    assert yaml.safe_load(dump(value, Format.YAML)) == value


@given(some.dictionaries(some.integers(), texts))
def test_numbers_are_numbers_as_keys_of_yaml(value: dict[int, str]) -> None:
    assert yaml.safe_load(dump(value, Format.YAML)) == value


@given(values)
def test_xml_is_well_formed_whatever_is_in_it(value: Any) -> None:
    document = dump(value, Format.XML)
    assert ElementTree.fromstring(document.encode()).tag == "perldata"
    assert all(line.strip().startswith("<") for line in document.rstrip().split("\n"))


@given(values)
def test_perl_data_can_be_read_back(value: Any) -> None:
    assert read_perl(dump(value, Format.DUMPER)) == as_texts(value)
    assert read_perl(dump(value, Format.DUMPER, one_line=True)) == as_texts(value)


@given(plain(printable))
def test_what_xml_can_hold_can_be_read_back(value: Any) -> None:
    assert read_xml(dump(value, Format.XML)) == as_texts(value)


@given(some.lists(some.text("ab<>&\"'\n\t é\u2028", max_size=12)))
def test_texts_survive_xml(value: list[str]) -> None:
    items = ElementTree.fromstring(dump(value, Format.XML).encode()).findall("arrayref/item")
    assert [item.text or "" for item in items] == value

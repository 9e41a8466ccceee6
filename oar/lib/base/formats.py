"""Write plain values as JSON, YAML, XML and Perl data, in the layouts that other programs read.

A plain value is None, a bool, an int, a float, a str, or a sequence or mapping of these; keys are str or int. OAR has
its own writers because the layouts are fixed character by character. They must also write 10000 jobs as fast as a text
table, so each makes one text without intermediate objects.

``RecordTables`` are many records of the same kind. Neither all records nor their whole text are in memory at once.

See docs/design/formats.rst, "Machine formats".
"""

import re
from abc import abstractmethod
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain, groupby, islice, repeat
from json.encoder import encode_basestring as quoted_json
from typing import Any, NamedTuple


class Format(StrEnum):
    """A machine format; if a command gets several, the first in this order is used."""

    DUMPER = "dumper"
    XML = "xml"
    YAML = "yaml"
    JSON = "json"


class RecordTable(NamedTuple):
    """Records with the same keys: the id of each record, and the values of all records by key."""

    ids: Sequence[int]
    columns: Mapping[str, Sequence[object]]  #: lists or tuples

    def items(self) -> Iterator[tuple[int, dict[str, object]]]:
        """Yield each record with its id."""
        for record_id, values in zip(self.ids, zip(*self.columns.values(), strict=True), strict=True):
            yield record_id, dict(zip(self.columns, values, strict=True))


class RecordTables(Mapping[int, dict[str, object]]):
    """Records by id that are created when they are read, one table at a time."""

    @abstractmethod
    def tables(self) -> Iterator[RecordTable]:
        """Yield all records, in order, without empty tables."""

    def items(self) -> ItemsView[int, dict[str, object]]:
        """Return the records with their ids."""
        return _TableItems(self)


class _TableItems(ItemsView[int, dict[str, object]]):
    def __init__(self, records: RecordTables) -> None:
        super().__init__(records)
        self._records = records

    def __iter__(self) -> Iterator[tuple[int, dict[str, object]]]:
        return chain.from_iterable(table.items() for table in self._records.tables())


def dump(value: object, format: Format, *, one_line: bool = False) -> str:
    """Return the document of a value, with its final newline. ``one_line`` only affects DUMPER."""
    return "".join(pieces(value, format, one_line=one_line))


def pieces(value: object, format: Format, *, one_line: bool = False) -> Iterator[str]:
    """Yield the document that ``dump`` returns in pieces. Allocating all of it at once would dominate the run time."""
    if format is Format.JSON and value and isinstance(value, RecordTables):
        yield from _JsonWriter().pieces(value)
    else:
        yield _document(value, format, one_line=one_line)


def _document(value: object, format: Format, *, one_line: bool) -> str:
    match format:
        case Format.JSON:
            return _JsonWriter().document(value)
        case Format.YAML:
            return f"---{_Yaml().value(value, '')}\n"
        case Format.XML:
            return _Xml().document(value)
        case Format.DUMPER:
            return _perl(value, "" if one_line else "\n") + "\n"


def read_yaml(text: str) -> object:
    """Return the plain value of a YAML document.  Raises ValueError, which names the line."""
    import yaml

    try:
        value: object = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise ValueError(f"line {line}: invalid YAML") from None
    return value


def _number(value: float) -> str | None:
    """Return a float as text, None for NaN and infinity."""
    return repr(value) if value - value == 0 else None


def _items(value: object) -> Sequence[object]:
    """Return the value if it is a sequence. Raises TypeError."""
    if not isinstance(value, Sequence):
        raise TypeError(f"{type(value).__name__} is not a plain value")
    return value


# --------------------------------------------------------------------------------------------------------------- JSON


_ROWS = (list, tuple)
_ROW_KINDS = frozenset(_ROWS)
_PAGE = 500  #: so many records are held at a time
_FEWEST = 4  #: fewer are not worth a table
_JSON_NULL = {None: "null"}
_JSON_BOOL = {True: "true", False: "false"}


class _JsonWriter:
    """Write JSON with an indentation of three spaces.

    The writer of a value depends on its type, and is cached per type. Consecutive mappings with the same keys, such as
    the records of 10000 jobs, are written as a table: their common parts are written only once.
    """

    def __init__(self) -> None:
        self._scalars: dict[type, Callable[[Any], str]] = {str: quoted_json, int: repr, float: _json_float}
        self._scalars |= {bool: _JSON_BOOL.__getitem__, type(None): _JSON_NULL.__getitem__}
        self._layouts: dict[tuple[str | int, ...], list[str]] = {}

    def document(self, value: object) -> str:
        return "".join([*self._parts(value, "\n"), "\n"])

    def pieces(self, records: RecordTables) -> Iterator[str]:
        """Yield the document of records, one piece per table. There must be at least one record."""
        start = "{"
        for table in records.tables():
            keys = [f',\n   "{record_id}" : ' for record_id in table.ids]
            keys[0] = start + keys[0].removeprefix(",")
            yield "".join(chain.from_iterable(self._rows(table.columns, "\n   ", keys)))
            start = ","
        yield "\n}\n"

    def _parts(self, value: object, newline: str) -> list[str]:
        """Return the text of a value in parts. ``newline`` includes the indentation of the current line."""
        inner = newline + "   "
        if isinstance(value, _ROWS):  # first, because the check for a Mapping is slow
            return ["[", inner, f",{inner}".join(self._texts(value, inner)), newline, "]"] if value else ["[]"]
        if isinstance(value, Mapping):
            parts = self._layout(value, newline).copy()
            parts[1:-1:2] = self._texts(value.values(), inner)
            return parts
        write = self._scalars.get(type(value)) or self._scalar(value)
        return [write(value)] if write else self._parts(list(_items(value)), newline)

    def _texts(self, values: Iterable[object], newline: str) -> list[str]:
        texts: list[str] = []
        rest = iter(values)
        while page := list(islice(rest, _PAGE)):
            for keys, run in groupby(page, _keys):
                rows: list[Any] = list(run)
                if keys and len(rows) >= _FEWEST:
                    columns = dict(zip(keys, zip(*[row.values() for row in rows], strict=True), strict=True))
                    texts += map("".join, self._rows(columns, newline, repeat("", len(rows))))
                else:
                    texts += self._each(rows, newline)
        return texts

    def _each(self, values: Iterable[object], newline: str) -> list[str]:
        writer_of, nested = self._scalars.get, self._nested
        return [write(item) if (write := writer_of(type(item))) else nested(item, newline) for item in values]

    def _rows(
        self, columns: Mapping[Any, Sequence[object]], newline: str, starts: Iterable[str]
    ) -> Iterable[Sequence[str]]:
        """Return the texts of mappings with the same keys in parts, each after its start, column by column."""
        inner = newline + "   "
        *layout, end = self._layout(columns, newline)
        written: dict[int, str | Sequence[str]] = {}  # by id of the column: several columns may be the same object
        parts, common = [starts], ""
        for before, column in zip(layout[::2], columns.values(), strict=True):
            texts = written.get(id(column))
            if texts is None:
                texts = written[id(column)] = self._column(column, inner)
            common += before
            if isinstance(texts, str):
                common += texts
            else:
                parts += [repeat(common), texts]
                common = ""
        return zip(*parts, repeat(common + end))

    def _column(self, column: Sequence[Any], newline: str) -> str | Sequence[str]:
        """Return the text of each value, or one text if all values obviously have the same text.

        Equal values may have different texts: 1 and True, 0.0 and -0.0. This does not apply to str and None.
        """
        first = column[0]
        if (first is None or isinstance(first, str)) and first == column[-1] and column.count(first) == len(column):
            return "null" if first is None else quoted_json(first)
        kinds = set(map(type, column))
        if kinds <= _ROW_KINDS:
            return self._column_of_rows(column, newline) if any(column) else "[]"
        write = self._scalars.get(type(first)) or self._scalar(first)
        if len(kinds) > 1 or not write:
            return self._each(column, newline)
        if first == column[-1] and not isinstance(first, float) and column.count(first) == len(column):
            return write(first)
        return list(map(write, column))

    def _column_of_rows(self, column: Sequence[Any], newline: str) -> str | Sequence[str]:
        """Return the same for a column of sequences. Many of them have the same texts, such as the types of jobs."""
        if set(map(type, column)) != {tuple} or set(map(type, chain.from_iterable(column))) != {str}:
            return self._each(column, newline)
        texts = {row: self._nested(row, newline) for row in set(column)}
        return texts[column[0]] if len(texts) == 1 else list(map(texts.__getitem__, column))

    def _nested(self, value: object, newline: str) -> str:
        return "".join(self._parts(value, newline)) if value or not isinstance(value, _ROWS) else "[]"

    def _layout(self, keys: Iterable[str | int], newline: str) -> list[str]:
        """Return the texts before, between and after the values of a mapping, with '' for each value."""
        layout_key = (newline, *keys)
        layout = self._layouts.get(layout_key)
        if layout is None:
            parts = [part for key in layout_key[1:] for part in (f",{newline}   {quoted_json(str(key))} : ", "")]
            layout = self._layouts[layout_key] = ["{" + parts[0][1:], *parts[1:], f"{newline}}}"] if parts else ["{}"]
        return layout

    def _scalar(self, value: object) -> Callable[[Any], str] | None:
        """Return the writer for values whose type is derived from a scalar type, and cache it."""
        if isinstance(value, str):
            self._scalars[type(value)] = quoted_json
        elif isinstance(value, int):
            self._scalars[type(value)] = lambda number: str(int(number))
        elif isinstance(value, float):
            self._scalars[type(value)] = _json_float
        return self._scalars.get(type(value))


def _keys(value: object) -> tuple[object, ...]:
    """Return the keys of a mapping, in their order, () for other values."""
    return tuple(value) if type(value) is dict else ()


def _json_float(value: float) -> str:
    return _number(value) or "null"


# --------------------------------------------------------------------------------------------------------------- YAML

#: What may stand without quotes: it begins with a letter, ``/`` or ``_``, and holds nothing with a meaning in YAML.
_YAML_PLAIN = r"[A-Za-z/_](?:[A-Za-z0-9_./@%+,=()<>~^*;|&$!?-]|:(?=[A-Za-z0-9_/])| (?=[^ #]))*\Z"
#: Words that are not texts, in any case.
_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
#: What single quotes cannot show: control characters, line ends of Unicode, and what YAML does not print.
_YAML_UNPRINTABLE = "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]"
_YAML_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _yaml_escape(match: re.Match[str]) -> str:
    character = match[0]
    return _YAML_SHORT.get(character) or f"\\u{ord(character):04x}"


class _Yaml:
    """Write YAML in block style. Texts are often repeated, so each is quoted only once."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._plain = re.compile(_YAML_PLAIN, re.ASCII)
        self._unprintable = re.compile(_YAML_UNPRINTABLE)

    def value(self, value: object, indent: str) -> str:
        """Return the text after a key or a dash: `` scalar``, or separate lines."""
        if isinstance(value, str):
            return " " + self._text(value)
        if value is None or isinstance(value, int | float):
            return " " + _yaml_scalar(value)
        start, deeper = f"\n{indent}", indent + "  "
        if isinstance(value, Mapping):
            lines = [
                f"{start}{key if isinstance(key, int) else self._text(key)}:{self.value(item, deeper)}"
                for key, item in value.items()
            ]
            return "".join(lines) or " {}"
        return "".join([f"{start}-{self._item(item, deeper)}" for item in _items(value)]) or " []"

    def _item(self, item: object, indent: str) -> str:
        """Return the text after a dash. The first key of a mapping is on the same line."""
        text = self.value(item, indent)
        return " " + text.removeprefix(f"\n{indent}") if text.startswith("\n") else text

    def _text(self, text: str) -> str:
        shown = self._texts.get(text)
        if shown is None:
            if self._plain.match(text) and text.lower() not in _YAML_WORDS:
                shown = text
            elif self._unprintable.search(text):
                escaped = text.replace("\\", "\\\\").replace('"', '\\"')
                shown = f'"{self._unprintable.sub(_yaml_escape, escaped)}"'
            else:
                shown = "'" + text.replace("'", "''") + "'"
            self._texts[text] = shown
        return shown


def _yaml_scalar(value: float | None) -> str:
    if value is None:
        return "~"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    text = _number(value) or "~"
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


# ---------------------------------------------------------------------------------------------------------------- XML

_XML_SPECIAL = "[&<>\"'\x00-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]"
_XML_NAMES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"}


def xml_text(text: str) -> str:
    """Return a text escaped for an element or an attribute of XML."""
    return re.sub(_XML_SPECIAL, _xml_escape, text)


def _xml_escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in "\n\t\r":
        return f"&#{ord(character)};"
    return _XML_NAMES.get(character) or f"\\x{ord(character):02x}"  # not allowed in XML in any form


class _Xml:
    """Write the layout of XML::Dumper: one scalar item per line, one space of indentation per level."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._address = 0
        self._special = re.compile(_XML_SPECIAL)

    def document(self, value: object) -> str:
        self._lines = ['<?xml version="1.0"?>', "<perldata>"]
        if _is_scalar(value):
            text = self._scalar(value)
            self._lines.append(' <scalar defined="false"></scalar>' if text is None else f" <scalar>{text}</scalar>")
        else:
            self._container(value, " ")
        self._lines += ["</perldata>", ""]
        return "\n".join(self._lines)

    def _container(self, value: object, indent: str) -> None:
        self._address += 8
        name = "hashref" if isinstance(value, Mapping) else "arrayref"
        pairs = value.items() if isinstance(value, Mapping) else enumerate(_items(value))
        lines = self._lines
        lines.append(f'{indent}<{name} memory_address="0x{self._address:x}">')
        deeper = indent + " "
        for key, item in pairs:
            shown = self._text(key) if isinstance(key, str) else key
            if not _is_scalar(item):
                lines.append(f'{deeper}<item key="{shown}">')
                self._container(item, deeper + " ")
                lines.append(f"{deeper}</item>")
                continue
            text = self._scalar(item)
            if text is None:
                lines.append(f'{deeper}<item key="{shown}" defined="false"></item>')
            else:
                lines.append(f'{deeper}<item key="{shown}">{text}</item>')
        lines.append(f"{indent}</{name}>")

    def _scalar(self, value: object) -> str | None:
        """Return the text of a scalar, None for an undefined one."""
        if isinstance(value, str):
            return self._text(value)
        if value is None:
            return None
        return str(int(value)) if isinstance(value, bool) else str(value)

    def _text(self, text: str) -> str:
        """Return the text with characters escaped that XML or line-oriented readers cannot process."""
        return self._special.sub(_xml_escape, text)


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


# --------------------------------------------------------------------------------------------------------- Perl data


def _perl(value: object, newline: str) -> str:
    """Return a Perl literal. If ``newline`` is "", it is on one line."""
    if isinstance(value, str):
        return _perl_text(value)
    if value is None or isinstance(value, int | float):
        return "undef" if value is None else f"'{value!r}'" if isinstance(value, float) else str(int(value))
    inner = newline and newline + "  "
    if isinstance(value, Mapping):
        items = [f"{_perl_text(str(key))} => {_perl(item, inner)}" for key, item in value.items()]
        return f"{{{inner}{f',{inner}'.join(items)}{newline}}}" if items else "{}"
    items = [_perl(item, inner) for item in _items(value)]
    return f"[{inner}{f',{inner}'.join(items)}{newline}]" if items else "[]"


def _perl_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

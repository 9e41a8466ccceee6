"""Documents of the commands read back as plain values, to prove that all machine formats hold the same."""

import json
import re
from typing import Any
from xml.etree import ElementTree

import yaml

_PERL = re.compile(r"\s*(=>|[{}\[\],]|undef|-?\d+|'(?:[^'\\]|\\.)*')", re.DOTALL)


def without_way_out(text: str) -> str:
    """Return what is said without what could be written or done instead, which stands behind two blanks."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("  "))


def read_xml(text: str) -> Any:
    """Return the value of a document of XML::Dumper; every scalar is a text, or None."""
    (top,) = ElementTree.fromstring(text.encode())
    return _scalar(top) if top.tag == "scalar" else _container(top)


def _container(element: ElementTree.Element) -> Any:
    items = {item.get("key", ""): _container(item[0]) if len(item) else _scalar(item) for item in element}
    if element.tag == "hashref":
        return items
    assert list(items) == [str(place) for place in range(len(items))]
    return list(items.values())


def _scalar(element: ElementTree.Element) -> str | None:
    return None if element.get("defined") == "false" else element.text or ""


def read_perl(text: str) -> Any:
    """Return the value of a Perl literal; every scalar is a text, or None."""
    value, rest = _perl_value(text)
    assert rest == "\n", rest[:80]
    return value


def _perl_value(text: str) -> tuple[Any, str]:
    token, rest = _perl_token(text)
    if token == "{":
        return _perl_items(rest, "}")
    if token == "[":
        return _perl_items(rest, "]")
    if token.startswith("'"):
        return re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.DOTALL), rest
    return None if token == "undef" else token, rest


def _perl_items(text: str, end: str) -> tuple[Any, str]:
    """Return the values up to a closing bracket, as a dictionary where it is a brace."""
    keys, values = [], []
    token, rest = _perl_token(text)
    while token != end:
        if end == "}":
            key, text = _perl_value(text)
            keys.append(key)
            token, text = _perl_token(text)
            assert token == "=>"
        value, text = _perl_value(text)
        values.append(value)
        token, rest = _perl_token(text)
        if token == ",":
            text = rest
            token = ""
    return dict(zip(keys, values, strict=True)) if end == "}" else values, rest


def _perl_token(text: str) -> tuple[str, str]:
    match = _PERL.match(text)
    assert match, text[:80]
    return match[1], text[match.end() :]


def as_texts(value: Any) -> Any:
    """Return a plain value with every scalar as the text that XML and Perl have for it."""
    if isinstance(value, dict):
        return {str(key): as_texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_texts(item) for item in value]
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    return str(int(value)) if isinstance(value, bool) else repr(value)


def same_in_all_formats(json_text: str, yaml_text: str, xml_text: str, perl_text: str) -> Any:
    """Return what the JSON holds, if the other documents hold the same, keys in the same order."""
    value = json.loads(json_text)
    assert _order(yaml.safe_load(yaml_text)) == _order(value)
    for read in (read_xml(xml_text), read_perl(perl_text)):
        assert _order(read) == _order(as_texts(value))
    return value


def _order(value: Any) -> Any:
    """Return a value that differs from another one also where only the order of keys differs; keys are texts."""
    if isinstance(value, dict):
        return [(str(key), _order(item)) for key, item in value.items()]
    return [_order(item) for item in value] if isinstance(value, list) else value

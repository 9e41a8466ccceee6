"""Sentences for values that do not have the form of their field, in place of pydantic's."""

from collections.abc import Mapping, Sequence
from typing import Any

from oar.api.errors import field_of
from oar.api.parameters import PRINTABLE
from oar.lib.facts.errors import BadRequest

_NOT_ACCEPTED = "the value is not accepted; /openapi.json describes the field"
_NOT_UNICODE = "a text must not hold half a character (a lone surrogate)"
#: Sentences by pydantic's type of an error; fields in braces are of its context.
_SENTENCES = {
    "missing": "a value is required",
    "extra_forbidden": "there is no such field",
    "json_invalid": "it is not JSON",
    "value_error": "{error}",
    **dict.fromkeys(("string_type", "string_sub_type"), "it must be a text"),
    "string_unicode": _NOT_UNICODE,
    "string_too_short": "the text must have at least {min_length} characters",
    "string_too_long": "the text must have at most {max_length} characters",
    "string_pattern_mismatch": "the text must match the regular expression {pattern}",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "it must be a whole number"),
    "int_parsing_size": "the number has too many digits",
    **dict.fromkeys(("float_type", "float_parsing"), "it must be a number"),
    "finite_number": "it must be a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "it must be true or false"),
    "greater_than_equal": "it must be at least {ge}",
    "less_than_equal": "it must be at most {le}",
    "list_type": "it must be a list",
    "dict_type": "it must be an object: {{...}}",
    **dict.fromkeys(("model_type", "model_attributes_type"), "it must be an object: {{...}}"),
    "too_short": "it must have at least {min_length} elements",
    "too_long": "it must have at most {max_length} elements",
    **dict.fromkeys(("literal_error", "enum"), "it must be {expected}"),
}


def sentence_of(fault: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, from an error of pydantic."""
    context = fault.get("ctx", {})
    if context.get("pattern") == PRINTABLE:
        return "the text must not hold control characters"
    return _SENTENCES.get(fault["type"], _NOT_ACCEPTED).format(**context)


def bad_request_of(faults: Sequence[Mapping[str, Any]]) -> BadRequest:
    """Return the error that reports the first of pydantic's errors."""
    field = field_of(faults[0]["loc"])
    return BadRequest(f"{field or 'body'}: {sentence_of(faults[0])}").of(field)

"""Types and checks of parameters, and of fields of request bodies, that several routes use."""

from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from oar.lib.base.errors import BadRequest
from oar.lib.history.gantt import DAY

#: The configuration of models of request bodies: unknown fields and values of another type are errors.
STRICT = ConfigDict(extra="forbid", strict=True)
#: The largest integer that the database can hold.
LARGEST_ID = 2**63 - 1
#: Characters without control characters: PostgreSQL accepts no NUL, terminals should receive none of the others.
PRINTABLE = r"^[^\x00-\x1f\x7f]*$"
#: Elements of a list of texts, and characters of a text: a command line could not hold more either.
MAX_TEXTS, MAX_LENGTH = 1000, 1 << 20


def storable(text: str) -> str:
    """Return a text.  Raises ValueError if the database cannot hold it."""
    if "\0" in text:
        raise ValueError("a text must not hold the character NUL")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a text must not hold half a character (a lone surrogate)") from None
    return text


Text = Annotated[str, Field(max_length=MAX_LENGTH), AfterValidator(storable)]
Texts = Annotated[list[Text], Field(max_length=MAX_TEXTS)]
Count = Annotated[int, Field(ge=0, le=LARGEST_ID)]
JobId = Annotated[int, Field(ge=1, le=LARGEST_ID, description="Job id.")]
#: Alternatives, separated by commas.
CommaList = Annotated[str | None, Field(max_length=2000, pattern=PRINTABLE)]
_FIELDS = "Comma-separated fields to return of each item."
#: The fields of items that a client selects (None: all).
Fields = Annotated[str | None, Field(max_length=2000, pattern=r"^[a-z_,]*$", description=_FIELDS)]
Force = Annotated[bool, Field(description="Proceed even if live jobs or reservations need it.")]


class Header:
    """Marks a parameter that is a header of the request."""


IfMatch = Annotated[
    str | None,
    Header(),
    Field(
        alias="If-Match",
        max_length=1000,
        pattern=r"^[\x20-\x7e]*$",
        description="`ETag` of the version to change; 412 if the current version differs.",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(),
    Field(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x20-\x7e]+$",
        description="Unique text, such as a UUID: a repeated request with the same key is executed only once.",
    ),
]


def check_period(begin: int, end: int, days: int | None = None) -> None:
    """Raise BadRequest if a period ends before it begins, or is longer than a number of days."""
    if begin >= end:
        raise BadRequest("`from` must be earlier than `to`")
    if days is not None and end > begin + days * DAY:
        raise BadRequest(f"the period must not be longer than {days} days")


def split_list(text: str | None) -> tuple[str, ...]:
    """Return the elements of a comma-separated list, without duplicates."""
    return tuple(dict.fromkeys(element for element in (text or "").split(",") if element))

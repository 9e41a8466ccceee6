"""Series of advance reservations: records of rows, with the words of the trade instead of column names.

Dates are epoch seconds, 0 when there is none; durations are seconds.
"""

import json
from typing import NamedTuple

from oar.lib.base.errors import BrokenRow
from oar.lib.reservations.records import AccessEntry, NewReservation
from oar.lib.reservations.request_records import decode

#: A series has so many occurrences at most.
MAX_OCCURRENCES = 1000


class SeriesTemplate(NamedTuple):
    """What is asked for with each occurrence of a series; its window and its place in the series follow."""

    new: NewReservation
    access: tuple[AccessEntry, ...]

    def encode(self) -> str:
        """Return it as it is stored."""
        return json.dumps({"new": self.new._asdict(), "access": self.access})


class NewSeries(NamedTuple):
    """A series that is asked for; columns that are not named here have their default."""

    owner: str
    rule: str  #: of RFC 5545
    time_zone: str  #: whose wall-clock time its starts keep; '' = the zone of the server, which has no name
    first_start: int
    duration: int
    template: str
    depth: int  #: so many occurrences are asked for in advance
    skips_conflicts: bool  #: what cannot be granted of the first ones is left out
    occurrences: int  #: how many it has in all
    next_index: int
    next_start: int


class Series(NamedTuple):
    """A row of ``reservation_series``."""

    id: int
    owner: str
    rule: str
    time_zone: str
    first_start: int
    duration: int
    template: str
    depth: int
    skips_conflicts: bool
    occurrences: int
    next_index: int  #: the number of the occurrence that is asked for next, from 1
    next_start: int  #: its start; 0 = all were asked for
    ended: int  #: 0 = it goes on

    @property
    def read_template(self) -> SeriesTemplate:
        """What is asked for with each occurrence.  Raises BrokenRow."""
        try:
            stored = json.loads(self.template)
            access = tuple(AccessEntry(text, denied) for text, denied in stored["access"])
            new = NewReservation(**stored["new"])
        except (ValueError, LookupError, TypeError):
            raise BrokenRow(f"what is asked for with series {self.id} cannot be read") from None
        types = NewReservation.__annotations__
        wrong = [name for name, value in new._asdict().items() if type(value) is not types[name]]
        wrong += ["access" for each in access if not each.is_storable][:1]
        if wrong:
            raise BrokenRow(f"what is asked for with series {self.id} cannot be read: {', '.join(wrong)}")
        decode(new.request)
        return SeriesTemplate(new, access)

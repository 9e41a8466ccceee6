"""The declaration of the fields of advance reservations: each option of a request is shown, each column is read."""

from oar.api.reservation_requests import ReservationRequest
from oar.lib.reservations.fields import COLUMNS, FIELDS
from oar.lib.reservations.options import ReservationOptions
from oar.lib.reservations.records import AdvanceReservation

#: Options that belong to the request or to its series, whose own record has them.
NOT_OF_A_RESERVATION = {"verify", "depth", "conflict"}


def test_what_a_request_accepts_is_shown_in_the_records_and_in_the_details() -> None:
    in_records = {option for field in FIELDS if field.record for option in field.options}
    in_details = {option for field in FIELDS if field.text for option in field.options}
    assert in_records == in_details == set(ReservationOptions._fields) - NOT_OF_A_RESERVATION


def test_the_api_accepts_the_options_of_the_command() -> None:
    names = {"now" if name == "interactive" else name for name in ReservationRequest.model_fields}
    assert names == set(ReservationOptions._fields) - {"verify"}


def test_each_attribute_of_a_row_has_a_column() -> None:
    assert set(COLUMNS) == set(AdvanceReservation._fields)

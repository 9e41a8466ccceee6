"""Errors of requests for advance reservations; their messages are complete lines for the user."""

from oar.lib.base.errors import UserError, WordedRefusal


class BadReservation(WordedRefusal):
    """A request cannot be parsed or satisfied."""


class Denied(WordedRefusal):
    """The user does not have permission; the API names the error ``denied``."""


class ChangeDenied(UserError):
    """The change is not allowed."""


class TooManyReservations(WordedRefusal):
    """MAX_ADVANCE_RESERVATIONS is reached."""

    exit_code = 25


def nothing_suits(why: str, way_out: str = "") -> BadReservation:
    """Return the error for a request that no resource can satisfy.

    ``why``: the reasons, one per line; each line is indented by two spaces.
    """
    reasons = "".join(f"\n  {line.removeprefix('# ')}" for line in why.split("\n"))
    return BadReservation(f"Error: No queue instances to reserve{reasons}", way_out)

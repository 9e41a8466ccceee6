"""Requests to the server over its control socket."""

import time
from typing import TYPE_CHECKING

from oar.lib.base.errors import ServerUnavailable, Unavailable
from oar.lib.bus import frames, sockets
from oar.lib.bus.messages import Wake

if TYPE_CHECKING:
    from oar.lib.bus.frames import Frame
    from oar.lib.config.files import Config

#: Seconds given to the server to answer, and to a round to end.
ANSWER_SECONDS = 5
ROUND_SECONDS = 60


class NoRound(Unavailable):
    """No scheduling pass has ended in time."""


def ask(config: "Config", question: "Frame", answer: "type[Frame]", seconds: float) -> "Frame | None":
    """Return the response of the server, None if there is none within ``seconds`` seconds."""
    deadline = time.monotonic() + seconds
    with sockets.connected(sockets.control_endpoint(config)) as dealer:
        poll = sockets.Poll(dealer)
        dealer.send(frames.encode(question))
        while time.monotonic() < deadline:
            poll.wait(max(0.0, deadline - time.monotonic()))
            for data in dealer.receive():
                frame = frames.decode(data)
                if isinstance(frame, answer):
                    return frame
    return None


def status(config: "Config") -> dict[str, object]:
    """Return the status of the server. Raises ServerUnavailable."""
    found = ask(config, frames.StatusQuestion(), frames.Status, ANSWER_SECONDS)
    if not isinstance(found, frames.Status):
        raise ServerUnavailable(f"Cannot notify the OAR server ({config.server_places}): no answer")
    return dict(found.state)


def await_round(config: "Config", wake: Wake) -> None:
    """Wake the server, and wait for the end of a scheduling pass that begins later.

    Raises ServerUnavailable, NoRound.
    """
    status(config)  # fail at once if the server is not running
    if ask(config, frames.WaitForRound(wake.tag), frames.Waited, ROUND_SECONDS) is None:
        raise NoRound(f"no round has ended within {ROUND_SECONDS} s.")

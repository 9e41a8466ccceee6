"""Deliver the effects of a module that is run from the command line, over the control endpoint like a child.

The doorbell, which commands use, accepts only tags and job actions. Only the account of the server can use the control
endpoint, so this endpoint also accepts orders to halt or wake nodes.

See docs/design/bus.rst, "Effects".
"""

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from oar.lib.bus import frames, sockets
from oar.lib.bus.frames import Status, StatusQuestion
from oar.lib.bus.messages import Effect, Energy, announcements
from oar.lib.runtime import Runtime, command_delivery

#: Seconds for the server to confirm that it has read the effects.
CONFIRMATION_SECONDS = 5.0


class ControlDelivery:
    """Deliver effects, from any thread, and check afterwards whether the server has read them."""

    def __init__(self, dealer: sockets.Dealer) -> None:
        self._dealer = dealer
        self._mutex = threading.Lock()
        self.effects: list[Effect] = []

    def deliver(self, effects: Sequence[Effect]) -> None:
        """Send the effects of a transaction."""
        with self._mutex:
            self.effects += effects
            for message in announcements(effects):
                self._dealer.send(frames.encode(message))

    def is_confirmed(self) -> bool:
        """Return whether the server answers a request that was sent after all effects."""
        poll = sockets.Poll(self._dealer)
        self._dealer.send(frames.encode(StatusQuestion()))
        deadline = time.monotonic() + CONFIRMATION_SECONDS
        while (seconds := deadline - time.monotonic()) > 0:
            poll.wait(seconds)
            if any(isinstance(frames.decode(data), Status) for data in self._dealer.receive()):
                return True
        return False


@contextmanager
def delivering(opened: Runtime) -> Iterator[None]:
    """Deliver the effects of all transactions in the block.

    If no server has confirmed them at the end, resend those that the doorbell accepts, and print a warning about the
    others.
    """
    with sockets.connected(sockets.control_endpoint(opened.config)) as dealer:
        delivery = ControlDelivery(dealer)
        opened.database.deliver = delivery.deliver
        try:
            yield
        finally:
            if delivery.effects and not delivery.is_confirmed():
                command_delivery(opened.config)(delivery.effects)
                for line in losses(delivery.effects):
                    sys.stderr.write(f"# Warning: {line}\n")


def losses(effects: Sequence[Effect]) -> list[str]:
    """Return messages about the effects that are lost without a server, because it cannot find them in the database."""
    count = sum(isinstance(effect, Energy) for effect in effects)
    if not count:
        return []
    return [f"orders to halt or wake nodes that are lost, because the OAR server does not answer: {count}"]

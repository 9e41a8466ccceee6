"""Wait for changes of advance reservations.  See docs/design/locks.rst, "Notifications"."""

from typing import TYPE_CHECKING

from oar.lib.bus.topics import Channel, Topic
from oar.lib.db.channel_listener import ChannelListener

if TYPE_CHECKING:
    from oar.lib.db.database import Database


class ReservationListener(ChannelListener):
    """Receives notifications that an advance reservation changed."""

    def __init__(self, database: "Database") -> None:
        super().__init__(database, Channel.EVENT)

    def wait(self, seconds: float) -> None:
        """Wait until an advance reservation changes, at most ``seconds``."""
        self.wait_until(lambda payload: payload == Topic.RESERVATIONS, seconds)

"""Wait for the end of jobs. See docs/design/locks.rst, "Notifications"."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from oar.lib.bus.messages import Channel
from oar.lib.db.channel_listener import ChannelListener

if TYPE_CHECKING:
    from oar.lib.db.database import Database


class EndListener(ChannelListener):
    """Listen for the notifications of ended jobs."""

    def __init__(self, database: "Database") -> None:
        super().__init__(database, Channel.JOB_END)

    def wait(self, ids: Collection[int], seconds: float) -> None:
        """Wait until all these jobs have ended, at most `seconds` seconds."""
        left = {str(job_id) for job_id in ids}

        def have_ended(payload: str) -> bool:
            left.difference_update(payload.split())
            return not left

        if left:
            self.wait_until(have_ended, seconds)

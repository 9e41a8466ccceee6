"""Notifications: the transaction after a commit that notifies the listeners of the database.

See docs/design/locks.rst, "Notifications".
"""

from collections.abc import Iterable

from oar.lib.bus.topics import Channel

#: A payload has less than 8000 bytes; an id has ten digits at most.
_IDS_IN_PAYLOAD = 500


def notification(topics: Iterable[str], ended: Iterable[int]) -> str:
    """Return the transaction that notifies listeners of topics and of ended jobs."""
    ids = [str(job_id) for job_id in sorted(ended)]
    pieces = (ids[begin : begin + _IDS_IN_PAYLOAD] for begin in range(0, len(ids), _IDS_IN_PAYLOAD))
    payloads = [(Channel.EVENT, topic) for topic in sorted(topics)]
    payloads += [(Channel.JOB_END, " ".join(piece)) for piece in pieces]
    notices = "".join(f"NOTIFY {channel}, '{payload}'; " for channel, payload in payloads)
    return f"BEGIN; SET LOCAL synchronous_commit TO off; {notices}COMMIT"

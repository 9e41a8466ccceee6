"""Documents that are sent part by part: the browser works on one while the next is made."""

import zlib
from collections.abc import Iterable, Iterator, Mapping

from fastapi import Request
from fastapi.responses import StreamingResponse

#: Makes zlib write the frame of gzip.
_GZIP = 16 + zlib.MAX_WBITS
_FAST = 1


def in_parts(request: Request, parts: Iterable[str], headers: Mapping[str, str]) -> StreamingResponse:
    """Return a document, each part of which is on its way before the next is asked for."""
    drawn = request.state.seat.drawn
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return StreamingResponse(drawn(part.encode() for part in parts), headers=headers, media_type="text/html")
    more = {**headers, "Content-Encoding": "gzip"}
    return StreamingResponse(drawn(_packed(parts)), headers=more, media_type="text/html")


def _packed(parts: Iterable[str]) -> Iterator[bytes]:
    packer = zlib.compressobj(_FAST, wbits=_GZIP)
    for part in parts:
        yield packer.compress(part.encode()) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()

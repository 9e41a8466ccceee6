"""The files that pages load: read once, packed once, under an address that changes with their contents."""

import gzip
import hashlib
import mimetypes
from pathlib import Path
from typing import NamedTuple

#: Where the files of the pages are.
DIRECTORY = Path(__file__).parent / "static"
_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".json": "application/json"}


class Asset(NamedTuple):
    """A file, as it is sent."""

    content: bytes
    packed: bytes  #: by gzip
    media_type: str


class Assets:
    """All files below a directory."""

    def __init__(self, directory: Path = DIRECTORY) -> None:
        names = sorted(path for path in directory.rglob("*") if path.is_file())
        self._files = {path.relative_to(directory).as_posix(): _read(path) for path in names}
        digest = hashlib.sha256()
        for name, asset in self._files.items():
            digest.update(f"{name}\0{len(asset.content)}\0".encode() + asset.content)
        #: A part of their address: another content has another address, so that browsers may keep them for ever.
        self.version = digest.hexdigest()[:12]

    def find(self, name: str) -> Asset | None:
        """Return a file, None if there is none of this name."""
        return self._files.get(name)

    def names(self, suffix: str) -> list[str]:
        """Return the names of the files that end so."""
        return [name for name in self._files if name.endswith(suffix)]


def _read(path: Path) -> Asset:
    content = path.read_bytes()
    media_type = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return Asset(content, gzip.compress(content, 9, mtime=0), media_type)

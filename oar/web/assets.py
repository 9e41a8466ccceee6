"""The files that pages load: read once, packed once, under an address that changes with their contents."""

import gzip
import hashlib
import mimetypes
import posixpath
import re
from pathlib import Path
from typing import NamedTuple

#: Where the files of the pages are.
DIRECTORY = Path(__file__).parent / "static"
#: How scripts name others that they need.
_IMPORT = re.compile(r"""^(?:import|export)\b[^"\n]*"(\.[^"]+)";""", re.MULTILINE)
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

    def imported(self, script: str) -> list[str]:
        """Return the scripts that one needs, those that they need among them, by name; none if it is not there."""
        found: set[str] = set()
        todo = [script]
        while todo:
            name = todo.pop()
            for other in self._imports(name):
                if other not in found:
                    found.add(other)
                    todo.append(other)
        return sorted(found)

    def _imports(self, script: str) -> list[str]:
        asset = self._files.get(script)
        named = _IMPORT.findall(asset.content.decode()) if asset else []
        return [posixpath.normpath(posixpath.join(posixpath.dirname(script), name)) for name in named]


def _read(path: Path) -> Asset:
    content = path.read_bytes()
    media_type = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return Asset(content, gzip.compress(content, 9, mtime=0), media_type)

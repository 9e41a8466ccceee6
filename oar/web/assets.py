"""The files that pages load: read once, packed when somebody asks first, under an address that changes with them."""

import gzip
import hashlib
import mimetypes
from functools import cached_property
from pathlib import Path

from oar.web.scripts import served

#: Where the files of the pages are.
DIRECTORY = Path(__file__).parent / "static"
_SCRIPT = ".js"
_TYPES = {_SCRIPT: "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".json": "application/json"}


class Asset:
    """A file, as it is sent."""

    def __init__(self, name: str, content: bytes) -> None:
        self.content = content
        suffix = Path(name).suffix
        self.media_type = _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"

    @cached_property
    def packed(self) -> bytes:
        """By gzip."""
        return gzip.compress(self.content, 9, mtime=0)


class Assets:
    """All files below a directory; of scripts those that pages name, with all that they import."""

    def __init__(self, directory: Path = DIRECTORY) -> None:
        paths = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*") if path.is_file()}
        scripts = served({name: path.read_text() for name, path in paths.items() if path.suffix == _SCRIPT})
        contents = {name: text.encode() for name, text in scripts.items()}
        contents |= {name: path.read_bytes() for name, path in paths.items() if path.suffix != _SCRIPT}
        self._files = {name: Asset(name, content) for name, content in sorted(contents.items())}
        digest = hashlib.sha256()
        for name, asset in self._files.items():
            digest.update(f"{name}\0{len(asset.content)}\0".encode() + asset.content)
        #: A part of their address: another content has another address, so that browsers may keep them for ever.
        self.version = digest.hexdigest()[:12]

    def find(self, name: str) -> Asset | None:
        """Return a file, None if there is none of this name that pages load."""
        return self._files.get(name)

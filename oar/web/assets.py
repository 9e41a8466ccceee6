"""The files that pages load: read once, scripts joined, under an address that changes with them."""

import gzip
import hashlib
import mimetypes
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

#: What stands before the name of each script.
_PREFIX = "js/"
_IMPORT = re.compile(r'^import \{ ([^}"\n]+) \} from "(\.[^"\n]+)";', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_LATER = re.compile(r'\bimport\("(\.[^"\n]+)"\)')
#: Imports and exports in whatever way they are written.
_ANY_IMPORT, _ANY_EXPORT = re.compile(r"^import\b(?! *\()", re.MULTILINE), re.compile(r"^export\b", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?://[^\n]*|/\*\*(?:(?!\*/).)*\*/)\n", re.MULTILINE | re.DOTALL)
_WAITS = re.compile(r"^(?:const \w+ = )?await ", re.MULTILINE)


def served(scripts: Mapping[str, str]) -> dict[str, str]:
    """Return the scripts that pages name, by name, from the texts of all modules.

    Those are the ones that no other imports, and for a page the one with which it begins to fetch its records,
    ``js/NAME/first.js``.  That one is no module, so that it runs before anything is drawn; the script of the page,
    ``js/pages/NAME.js``, finds in the names of all scripts what it has left there.  Raises ValueError for a module that
    is written otherwise.
    """
    scripts = {name: _COMMENT.sub("", text) for name, text in scripts.items()}
    graph = {name: _imports(name, scripts) for name in scripts}
    imported = {other for others in graph.values() for other in others}
    begins = {name: first for name in graph if (first := _first_of(name)) in graph}
    found = {name: _joined(scripts, _in_order(graph, name)) for name in graph.keys() - imported - begins.keys()}
    for page, first in begins.items():
        there = _in_order(graph, first)
        found[first] = _plain(scripts, there)
        found[page] = _joined(scripts, [name for name in _in_order(graph, page) if name not in there])
    return found


def _first_of(page: str) -> str:
    return page.replace("/pages/", "/").removesuffix(".js") + "/first.js"


def _imports(name: str, scripts: Mapping[str, str]) -> list[str]:
    """Return the modules that one imports.  Raises ValueError."""
    text, found = scripts[name], []
    if len(_IMPORT.findall(text)) != len(_ANY_IMPORT.findall(text)) or len(_EXPORT.findall(text)) != len(
        _ANY_EXPORT.findall(text)
    ):
        raise ValueError(f"{name}: an import or an export has an unsupported form")
    for words, path in _IMPORT.findall(text):
        other = _beside(name, path)
        unknown = {word.split(" as ")[0] for word in words.split(", ")} - set(_EXPORT.findall(scripts.get(other, "")))
        if unknown:
            raise ValueError(f"{name}: {other} exports no {', '.join(sorted(unknown))}")
        found.append(other)
    return [*found, *(_beside(name, path) for path in _LATER.findall(text))]


def _beside(name: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), path))


def _in_order(graph: Mapping[str, list[str]], name: str) -> list[str]:
    """Return the modules that one needs, and itself, each behind those that it imports.  Raises ValueError."""
    return list(dict.fromkeys(_walk(graph, name, ())))


def _walk(graph: Mapping[str, list[str]], name: str, above: tuple[str, ...]) -> Iterator[str]:
    if name in above:
        raise ValueError(f"{name} imports itself: {' '.join(above)}")
    for other in graph[name]:
        yield from _walk(graph, other, (*above, name))
    yield name


def _joined(scripts: Mapping[str, str], names: Sequence[str]) -> str:
    text = scripts[names[-1]]
    if not _EXPORT.search(text) and not _imports(names[-1], scripts):
        return text  # perhaps it is no module
    return "".join(_as_function(name, scripts[name]) for name in names)


def _plain(scripts: Mapping[str, str], names: Sequence[str]) -> str:
    """Return modules as a script that is none.  Raises ValueError."""
    for name in names:
        if _WAITS.search(scripts[name]):
            raise ValueError(f"{name}: a script that is not a module cannot wait")
    return '"use strict";\n' + "".join(_as_function(name, scripts[name]) for name in names)


def _as_function(name: str, text: str) -> str:
    exported = ", ".join(_EXPORT.findall(text))
    body = _EXPORT.sub("", _IMPORT.sub(lambda found: _taken(name, *found.groups()), text))
    body = _LATER.sub(lambda found: f"Promise.resolve({_object(_beside(name, found[1]))})", body)
    function = "await (async () =>" if _WAITS.search(text) else "(() =>"
    return f"const {_object(name)} = {function} {{\n{body}return {{ {exported} }};\n}})();\n"


def _taken(name: str, words: str, path: str) -> str:
    return f"const {{ {words.replace(' as ', ': ')} }} = {_object(_beside(name, path))};"


def _object(name: str) -> str:
    """Return what a module is called where it is a function: ``$common_job_acts``."""
    return "$" + re.sub(r"\W", "_", name.removeprefix(_PREFIX).removesuffix(".js"))


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

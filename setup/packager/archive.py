"""The Debian package format: creates a package from a tree of files, reproducibly."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from installer.target import InstallError

_SCRIPTS = ("preinst", "postinst", "prerm", "postrm")


def build(tree: Path, fields: Mapping[str, str], scripts: Mapping[str, str], output: Path, date: int) -> Path:
    """Create the package of a tree.  ``date``: upper limit of the files' dates.  Raises InstallError."""
    _compress(tree)
    control = tree / "DEBIAN"
    files = [path for path in sorted(tree.rglob("*")) if path.is_file() and not path.is_symlink()]
    size = sum(-(-path.stat().st_size // 1024) for path in files)
    control.mkdir(mode=0o755)
    (control / "control").write_text(_paragraph({**fields, "Installed-Size": str(size)}))
    sums = (f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(tree)}\n" for path in files)
    (control / "md5sums").write_text("".join(sums))
    if configuration := [f"/{path.relative_to(tree)}\n" for path in files if path.relative_to(tree).parts[0] == "etc"]:
        (control / "conffiles").write_text("".join(configuration))
    for name, text in scripts.items():
        (control / name).write_text(text)
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.name in _SCRIPTS else path.stat().st_mode & 0o777)
    package = output / f"{fields['Package']}_{fields['Version']}_{fields['Architecture']}.deb"
    words = ["dpkg-deb", "--build", "--root-owner-group", "-Zxz", "-z1", str(tree), str(package)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(date)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise InstallError(f"{package.name} cannot be built: {done.stderr.strip()}")
    return package


def compressed(place: Path, text: str) -> None:
    """Write a document as Debian's policy requires: compressed, without a date."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _compress(tree: Path) -> None:
    for path in [*tree.glob("usr/share/man/man*/*")]:
        compressed(path.with_name(f"{path.name}.gz"), path.read_text())
        path.unlink()


def _paragraph(fields: Mapping[str, str]) -> str:
    return "".join(f"{name}: {text}\n" for name, text in fields.items())

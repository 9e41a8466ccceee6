"""Archives of jobs on desktop computers: what is in them is checked, since users, or computers of others, make them.

A part of ``oar-agent``.  The server runs it, too, to unpack results as their user; then it is a program:

    agent_archives.py DIRECTORY BYTES <ARCHIVE

Python >= 3.6, standard library only.  See docs/design/desktop.rst, "Archives".
"""

import contextlib
import errno
import os
import resource
import stat
import sys
import tarfile
import time
import zipfile
import zlib
from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import IO, Any

    #: Relative name -> size, date of the last change, mode.
    Files = dict[str, tuple[int, int, int]]

#: What the program ends with when the directory cannot be used, an archive is refused, files were left out.
NO_DIRECTORY, BAD_ARCHIVE, LEFT_OUT = 3, 4, 5
#: Members of an archive, and seconds of processor and bytes of memory to unpack one for the server.
MOST_MEMBERS, UNPACK_SECONDS, UNPACK_MEMORY = 1000000, 240, 1 << 30
BLOCK = 1 << 16
#: What a damaged archive makes the standard library raise.
BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, MemoryError)
#: Types of members of tar archives that are plain files, and what they are here.
PLAIN = dict.fromkeys((tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, tarfile.AREGTYPE), tarfile.REGTYPE)

#: A member of an archive: ``kind`` is one of the types of ``tarfile``.
Member = namedtuple("Member", "name kind mode size date link source")


class BadArchive(Exception):
    """An archive has what it must not have; why."""


def parts_of(name: str) -> "list[str]":
    """Return the words of a relative name; refuse one that leads out of the directory."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or "\0" in name or ".." in parts:
        raise BadArchive("the archive has the name %r, which leads out of its directory" % name[:200])
    return parts


def check_link(member: Member) -> None:
    """Refuse a symbolic link that leads out of the directory: ``..`` stands only at its beginning, seldom enough."""
    words = [word for word in member.link.split("/") if word not in ("", ".")]
    ups = 0
    while ups < len(words) and words[ups] == "..":
        ups += 1
    depth = len(parts_of(member.name)) - 1
    if member.link.startswith("/") or not words or ".." in words[ups:] or ups > depth:
        text = "the archive has the link %r to %r, which leads out of its directory"
        raise BadArchive(text % (member.name[:200], member.link[:200]))


def names_in_link(member: Member) -> "list[str]":
    """Return the names through which a link leads: who writes to it later writes to what they name."""
    words = member.link.split("/") if member.kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else []
    return [word for word in words if word not in ("", ".", "..")]


def tar_members(file: "IO[bytes]") -> "Iterator[Member]":
    """Give the members of a tar archive, packed by gzip or bzip2 or not at all."""
    with tarfile.open(fileobj=file, mode="r|*", errorlevel=2) as archive:
        for info in archive:
            kind = PLAIN.get(info.type, info.type)
            source = archive.extractfile(info) if kind == tarfile.REGTYPE else None
            yield Member(info.name, kind, info.mode, info.size, info.mtime, info.linkname, source)
            setattr(archive, "members", [])  # noqa: B010 - they would all stay in memory


def zip_members(file: "IO[bytes]") -> "Iterator[Member]":
    """Give the members of a zip archive."""
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            is_directory = info.filename.endswith("/")
            kind = tarfile.DIRTYPE if is_directory else tarfile.REGTYPE
            if stat.S_IFMT(mode) not in (0, stat.S_IFDIR if is_directory else stat.S_IFREG):
                kind = tarfile.CHRTYPE  # a link, or a device
            date = time.mktime((*info.date_time, 0, 0, -1))
            source = archive.open(info) if kind == tarfile.REGTYPE else None
            yield Member(info.filename, kind, mode & 0o777 or 0o666, info.file_size, date, "", source)


def checked_members(file: "IO[bytes]", kind: str, most: int) -> "Iterator[Member]":
    """Give the members of an archive that may be unpacked; refuse the archive that has others, or too much."""
    count = total = 0
    for member in zip_members(file) if kind == "zip" else tar_members(file):
        count, total = count + 1, total + max(0, member.size)
        if count > MOST_MEMBERS or total > most:
            raise BadArchive("the archive has more than %d bytes in %d files" % (most, MOST_MEMBERS))
        parts_of(member.name)
        if member.kind == tarfile.SYMTYPE:
            check_link(member)
        elif member.kind == tarfile.LNKTYPE:
            parts_of(member.link)
        elif member.kind not in (tarfile.REGTYPE, tarfile.DIRTYPE):
            raise BadArchive(
                "the archive has %r, which must be a file, a directory or a link inside it" % member.name[:200]
            )
        yield member


class Unpacking:
    """A directory into which archives are unpacked; no link that is there, or comes, is followed."""

    def __init__(self, directory: str, *, hidden: bool = True) -> None:
        """``hidden``: names that begin with a dot are unpacked, too."""
        self._root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._hidden = hidden
        self.left_out = 0

    def close(self) -> None:
        """Let the directory go."""
        os.close(self._root)

    def unpack(self, file: "IO[bytes]", kind: str, most: int) -> None:
        """Unpack an archive of at most so many bytes, nothing of one that is refused; raise BadArchive, OSError."""
        try:
            for _ in checked_members(file, kind, most):
                pass
            file.seek(0)
            left = most
            for member in checked_members(file, kind, most):
                left -= self._put(member, left)
        except BROKEN as error:
            raise BadArchive("the archive is damaged: %s" % (error or type(error).__name__)) from None

    def _put(self, member: Member, most: int) -> int:
        """Make one member; return how many bytes were written."""
        parts = parts_of(member.name)
        if not parts:
            return 0
        if not self._hidden and any(part.startswith(".") for part in (*parts, *names_in_link(member))):
            self.left_out += 1
            return 0
        if member.kind == tarfile.DIRTYPE:
            os.close(self._directory(parts))
            return 0
        parent = self._directory(parts[:-1])
        try:
            return self._replace(parent, parts[-1], member, most)
        finally:
            os.close(parent)

    def _directory(self, parts: "Sequence[str]") -> int:
        """Return a directory below the root, made if it is not there."""
        here = os.dup(self._root)
        for part in parts:
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o777, dir_fd=here)
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise BadArchive("%r must be a directory, not a link" % part[:200]) from None
                raise
            finally:
                os.close(here)
            here = below
        return here

    def _replace(self, parent: int, name: str, member: Member, most: int) -> int:
        """Make a file or a link beside the one that is there, then in its place."""
        fresh, count = ".%d.oar" % os.getpid(), 0
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=parent)
        if member.kind == tarfile.SYMTYPE:
            os.symlink(member.link, fresh, dir_fd=parent)
        elif member.kind == tarfile.LNKTYPE:
            self._link(member, fresh, parent)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(fresh, flags, 0o600, dir_fd=parent), "wb") as file:
                count = pour(member.source, file, most)
                os.fchmod(file.fileno(), member.mode & 0o777 | 0o600)
                os.utime(file.fileno(), (member.date, member.date))
        try:
            os.rename(fresh, name, src_dir_fd=parent, dst_dir_fd=parent)
        except IsADirectoryError:
            os.unlink(fresh, dir_fd=parent)
            raise BadArchive("%r is a directory already" % name[:200]) from None
        return count

    def _link(self, member: Member, fresh: str, parent: int) -> None:
        """Make a hard link to what is there already."""
        target = parts_of(member.link)
        source = self._directory(target[:-1])
        try:
            os.link(target[-1], fresh, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
        except (FileNotFoundError, IndexError):
            raise BadArchive("%r is a link to a missing file" % member.name[:200]) from None
        finally:
            os.close(source)


def pour(source: "Any", target: "IO[bytes]", most: int) -> int:
    """Write what can be read to a file, at most so many bytes; return how many; raise BadArchive if there are more."""
    count = 0
    while True:
        block = source.read(BLOCK)
        if not block:
            return count
        count += len(block)
        if count > most:
            raise BadArchive("the size must be at most %d bytes" % most)
        target.write(block)


def main(directory: str, most: int) -> int:
    """Unpack the results of a job from the standard input, as its user on the server; return the exit code."""
    resource.setrlimit(resource.RLIMIT_CPU, (UNPACK_SECONDS, UNPACK_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (UNPACK_MEMORY, UNPACK_MEMORY))
    os.umask(0o022)
    try:
        place = Unpacking(directory, hidden=False)
    except OSError as error:
        sys.stdout.write("%s: %s\n" % (directory, error.strerror))
        return NO_DIRECTORY
    try:
        place.unpack(sys.stdin.buffer, "tar.gz", most)
    except (OSError, BadArchive) as error:
        sys.stdout.write("%s\n" % error)
        return BAD_ARCHIVE
    if place.left_out:
        sys.stdout.write("%d files whose names begin with a dot are left in the archive\n" % place.left_out)
        return LEFT_OUT
    return 0


def files_in(directory: str) -> "Files":
    """Return what is in a directory: files, directories and links, nothing else."""
    found = {}
    for place, directories, names in os.walk(directory):
        for name in directories + names:
            path = os.path.join(place, name)
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode):
                    size, date = (0, 0) if stat.S_ISDIR(status.st_mode) else (status.st_size, status.st_mtime_ns)
                    found[os.path.relpath(path, directory)] = (size, date, status.st_mode)
    return found


def pack(directory: str, before: "Files", path: str) -> "list[str]":
    """Pack what is new in a directory, or has changed; return why something was left out.

    That is what the server would refuse, and what cannot be read.
    """
    left_out = []
    with tarfile.open(path, "w:gz", compresslevel=6, format=tarfile.PAX_FORMAT) as archive:
        for name, known in sorted(files_in(directory).items()):
            if before.get(name) == known:
                continue
            try:
                info = archive.gettarinfo(os.path.join(directory, name), name)
                if info.issym():
                    check_link(Member(name, info.type, 0, 0, 0, info.linkname, None))
                if info.isreg():
                    with open(os.path.join(directory, name), "rb") as file:
                        archive.addfile(info, file)
                else:
                    archive.addfile(info)
            except (BadArchive, PermissionError) as error:
                left_out.append(str(error))
    return left_out


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))

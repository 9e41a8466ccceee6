"""Files that ``sacctmgr dump`` of Slurm writes: accounts, users and coordinators become projects, members and managers.

Facts that OAR cannot represent are counted by kind (``SlurmAccounts.omitted``), so that nothing disappears silently.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from oar.lib.accounts.project_changes import LARGEST_SHARES, check_entry, check_no_circle, checked_name
from oar.lib.accounts.records import Member, Project
from oar.lib.accounts.states import MemberRole
from oar.lib.base.errors import BadRequest

#: The account above all others, which every cluster has.
_ROOT = "root"
#: Values of Fairshare that mean "the same as the account": the second is what Slurm stores.
_OF_ACCOUNT = ("parent", "2147483647")
_LINE = re.compile(r"(\w+) +- +(.*)")
#: Where a quoted text ends: apostrophes inside it are not escaped.
_END = re.compile(r"(?=:[A-Za-z]+=|:?\s*$)")
_KEY = re.compile(r":+([A-Za-z]+)=")
_NOTHING = re.compile(r"[:\s]*$")
#: The keys that are imported; Slurm does not distinguish small and capital letters.
_STANDARD = {
    key.lower(): key
    for key in ("Coordinator", "DefaultAccount", "Description", "Fairshare", "GrpCPUMins", "GrpTRESMins")
}


class SlurmAccounts(NamedTuple):
    """The content of a file."""

    projects: tuple[Project, ...]
    members: tuple[Member, ...]
    defaults: Mapping[str, str]  #: the default project by user
    hours: Mapping[str, float]  #: the resource hours of projects with a limit of CPU minutes
    omitted: Mapping[str, int]  #: what OAR has no equivalent for, and how many there are


def parse_sacctmgr(text: str) -> SlurmAccounts:
    """Parse a file of ``sacctmgr dump``.  Raises BadRequest, which names the line."""
    if "\0" in text:
        raise BadRequest("the file contains a zero byte: it is no file of sacctmgr dump.")
    reader = _Reader()
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                reader.read(line.strip())
            except BadRequest as error:
                raise BadRequest(f"line {number}: {error}") from None
    return reader.result()


class _Reader:
    """Reads line by line; ``parent`` is the account to which the next lines belong."""

    def __init__(self) -> None:
        self._cluster = ""
        self._parent = _ROOT
        self._projects: dict[str, Project] = {}
        self._members: dict[tuple[str, str], Member] = {}
        self._coordinators: dict[tuple[str, str], None] = {}
        self._defaults: dict[str, str] = {}
        self._hours: dict[str, float] = {}
        self._omitted: Counter[str] = Counter()

    def read(self, line: str) -> None:
        match = _LINE.fullmatch(line)
        if match is None:
            raise BadRequest(f"{_short(line)} is no line of sacctmgr dump, such as: Account - 'physics':Fairshare=10")
        kind, (name, options) = match[1].lower(), _parse_options(match[2])
        match kind:
            case "cluster" | "machine":
                self._read_cluster(name, options)
            case "parent":
                self._parent = name if name == _ROOT else checked_name(name)
            case "account" | "project":
                self._read_account(name, options)
            case "user":
                self._read_user(name, options)
            case _:
                self._omitted[f"lines of {match[1]}"] += 1

    def _read_cluster(self, name: str, options: dict[str, str]) -> None:
        if self._cluster:
            raise BadRequest(f'the cluster "{name}" is the second one. Import one file for each cluster.')
        self._cluster = name
        self._omit(options, "clusters", {"Fairshare"})

    def _read_account(self, name: str, options: dict[str, str]) -> None:
        if name == _ROOT:
            self._omit(options, "the account root", {"Description", "Fairshare"})
            return
        if checked_name(name) in self._projects:
            raise BadRequest(f'the account "{name}" is in the file twice.')
        parent = None if self._parent == _ROOT else self._parent
        shares = self._shares(options, "accounts")
        self._projects[name] = Project(name, options.get("Description", ""), parent, shares=shares)
        self._read_hours(name, options)
        self._omit(options, "accounts", {"Description", "Fairshare", "GrpTRESMins", "GrpCPUMins"})

    def _read_user(self, name: str, options: dict[str, str]) -> None:
        check_entry(name)
        self._omit(options, "users", {"DefaultAccount", "Fairshare", "Coordinator"})
        for account in filter(None, options.get("Coordinator", "").split(",")):
            self._coordinators[account, name] = None
        if self._parent == _ROOT:
            self._omitted["users of the account root"] += 1
            return
        if default := options.get("DefaultAccount"):
            self._defaults.setdefault(name, default)
        member = Member(self._parent, name, shares=self._shares(options, "users"))
        former = self._members.get((self._parent, name))  # a user has a line for each partition
        if former is None or former.shares < member.shares:
            self._members[self._parent, name] = member

    def _shares(self, options: dict[str, str], kind: str) -> int:
        text = options.get("Fairshare", "1")
        if text.lower() in _OF_ACCOUNT:
            self._omitted[f"Fairshare=parent of {kind} (becomes 1 share)"] += 1
            return 1
        shares = _number(text, "Fairshare")
        if shares > LARGEST_SHARES:
            self._omitted[f"Fairshare above {LARGEST_SHARES:,} of {kind} (becomes {LARGEST_SHARES:,})"] += 1
        return min(shares, LARGEST_SHARES)

    def _read_hours(self, name: str, options: dict[str, str]) -> None:
        if minutes := options.get("GrpCPUMins"):
            self._hours[name] = _number(minutes, "GrpCPUMins") / 60
        for part in filter(None, options.get("GrpTRESMins", "").split(",")):
            resource, _, minutes = part.partition("=")
            if resource.lower() == "cpu":
                self._hours[name] = _number(minutes, "GrpTRESMins") / 60
            else:
                self._omitted[f"GrpTRESMins of {resource} of accounts"] += 1

    def _omit(self, options: dict[str, str], kind: str, known: set[str]) -> None:
        self._omitted.update(f"{key} of {kind}" for key in options if key not in known)

    def result(self) -> SlurmAccounts:
        """Return what was read.  Raises BadRequest."""
        check_no_circle(self._projects)
        members = {**self._members}
        for account, user in self._coordinators:
            if account in self._projects:
                member = members.get((account, user), Member(account, user))
                members[account, user] = member._replace(role=MemberRole.MANAGER)
            else:
                self._omitted["coordinators of accounts that are not in the file"] += 1
        defaults = {user: account for user, account in self._defaults.items() if account in self._projects}
        if unknown := len(self._defaults) - len(defaults):
            self._omitted["DefaultAccount of users that is not in the file"] += unknown
        projects, omitted = tuple(self._projects.values()), dict(sorted(self._omitted.items()))
        return SlurmAccounts(projects, tuple(members.values()), defaults, self._hours, omitted)


def _parse_options(text: str) -> tuple[str, dict[str, str]]:
    """Return the name that a line begins with, and its options by key.  Raises BadRequest."""
    name, position = _value(text, 0)
    options: dict[str, str] = {}
    while match := _KEY.match(text, position):
        options[match[1]], position = _value(text, match.end())
    if not _NOTHING.match(text, position):
        raise BadRequest(f"{_short(text[position : position + 100])} is no option: write :KEY=VALUE.")
    return name, {_STANDARD.get(key.lower(), key): value for key, value in options.items()}


def _value(text: str, start: int) -> tuple[str, int]:
    """Return the value at a position, without its quotes, and the position behind it.  Raises BadRequest."""
    quote = text[start : start + 1]
    if quote not in ("'", '"'):
        end = text.find(":", start)
        end = len(text) if end < 0 else end
        return text[start:end].strip(), end
    end = text.find(quote, start + 1)
    while end >= 0 and not _END.match(text, end + 1):
        end = text.find(quote, end + 1)
    if end < 0:
        raise BadRequest(f"the quotation mark of {_short(text[start:])} is not closed.")
    return text[start + 1 : end], end + 1


def _number(text: str, key: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise BadRequest(f"{key}: {_short(text)} is no number.")
    return int(text)


def _short(text: str) -> str:
    return f'"{text[:40]}..."' if len(text) > 40 else f'"{text}"'

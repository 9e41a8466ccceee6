"""Admission rules of older versions: recognize the standard rules in Perl and replace them with Python.

OAR cannot run Perl.  The rules shipped with OAR 2.2 to 2.5 are recognized even if comments, white space and message
texts differ.  Values that sites commonly changed (a walltime, a group, a list) are taken over.  Any other Perl text is
kept unchanged and disabled, for the administrator to read.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple


class Fate(StrEnum):
    """How a rule is adopted."""

    SHIPPED = "SHIPPED"  #: it is a standard rule: the one that is shipped takes its place
    TRANSLATED = "TRANSLATED"  #: the same, with what the site had changed in it
    PYTHON = "PYTHON"  #: it is Python: it stays as it is
    KEPT = "KEPT"  #: it is none of these: its text is kept, disabled
    ADDED = "ADDED"  #: a shipped rule that the old database did not have


class OldRule(NamedTuple):
    id: int
    priority: int
    enabled: bool
    text: str


class AdoptedRule(NamedTuple):
    """A rule in the new database."""

    rule: OldRule
    fate: Fate
    name: str = ""  #: of the shipped rule, '' if it is none of them
    was_enabled: bool = True  #: in the old database; of an added rule, in a new one
    former: str = ""  #: the text in the old database


class _Standard(NamedTuple):
    """A standard rule: the name of the shipped rule, and the function that inserts the site's values into its text."""

    name: str
    translate: "Callable[[str, Mapping[str, str]], str | None]"


#: What sites change in standard rules: each replaced by its name before texts are compared.
_PARAMETERS: Mapping[str, str] = {
    "walltime": r'sql_to_duration\("([^"]*)"\)',
    "group": r'\$admin_group="([^"]*)"',
    "properties": r"@bad_resources=\(([^)]*)\)",
    "types": r"@types=\((.*?)\);",
    "prefixes": r"\$t!~/\^\(([^)]*)\)/",
    "reservations": r"\$max_nb_resa=(\d+)",
    "file": r'open\(FILE,"([^"]*)"\)',
}
#: How versions before 2.5.5 wrote the same, and how 2.5.9 writes it.
_OLD_SPELLINGS = (
    ("iolib::", "OAR::IO::"),
    ("$#{@{$r->{resources}}}", "$#{$r->{resources}}"),
    (r"split(/\s/,", r"split(/\s+/,"),
    ("split(/s/,", r"split(/\s+/,"),
    ("(deploy|allow_classic_ssh)", "deploy"),
    ("->{resource}$/,@bad_resources", "->{resource}$/i,@bad_resources"),
)
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_MESSAGE = re.compile(r'"\[ADMISSION RULE\][^"]*"')
#: Texts in quotes, of which blanks are a part, and blanks elsewhere.
_BLANKS = re.compile(r"\"[^\"]*\"|'[^']*'|\s+")
_DURATION = re.compile(r"(\d{1,6}):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
#: Digits of a sum.
_DIGITS = 12
#: Properties of which the rules of OAR 2.5 did not know that they are OAR's own.
_NEWER = frozenset({"drain", "gpu"})


def _bare(text: str) -> str:
    """Return a Perl text without comments, message texts and insignificant white space."""
    plain = _MESSAGE.sub('"..."', _COMMENT.sub("", text).replace("\\'", "'"))
    bare = _BLANKS.sub(lambda match: " ".join(match[0].split()) if match[0].strip() else "", plain)
    for former, present in _OLD_SPELLINGS:
        bare = bare.replace(former, present)
    return bare


def skeleton(text: str) -> tuple[str, dict[str, str]]:
    """Return a digest of the code of a Perl rule, and the values that the site may have set, by name."""
    bare, values = _bare(text), dict[str, str]()
    for name, pattern in _PARAMETERS.items():
        if match := re.search(pattern, bare):
            values[name] = match[1]
            bare = bare[: match.start(1)] + f"<{name}>" + bare[match.end(1) :]
    return hashlib.sha256(bare.encode()).hexdigest()[:_DIGITS], values


# -- texts of the shipped rules, with the values of the site -----------------------------------------------------------


def _as_shipped(text: str, values: Mapping[str, str]) -> str:
    return text


def _with_walltime(text: str, values: Mapping[str, str]) -> str | None:
    match = _DURATION.fullmatch(values.get("walltime", ""))
    if match is None:
        return None
    seconds = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3] or 0)
    return re.sub(r"(?m)^([A-Z_]+ = )\d+$", rf"\g<1>{seconds}", text, count=1) if seconds else None


def _with_group(text: str, values: Mapping[str, str]) -> str | None:
    group = values.get("group", "")
    if not re.fullmatch(r"[\w.-]+", group, re.ASCII):
        return None
    return text.replace('user, "admin"', f'user, "{group}"').replace("group admin", f"group {group}")


def _with_properties(text: str, values: Mapping[str, str]) -> str | None:
    """Set the properties that the site's rule rejects, and keep the shipped ones that older versions did not have."""
    names = {name for name in re.findall(r'"(\w+)"', values.get("properties", "")) if name != "cm_availability"}
    shipped = re.search(r"(?m)^[A-Z_]+ = \{([^}]*)\}$", text)
    if shipped is None or not names:
        return None
    ours = re.findall(r'"(\w+)"', shipped[1])
    wanted = [name for name in ours if name in names or name in _NEWER] + sorted(names.difference(ours))
    if wanted == ours:
        return text
    many = "\n" in shipped[1]
    shown = "\n" + "".join(f'    "{name}",\n' for name in wanted) if many else ", ".join(f'"{name}"' for name in wanted)
    return text[: shipped.start(1)] + shown + text[shipped.end(1) :]


def _with_reservations(text: str, values: Mapping[str, str]) -> str | None:
    if values["file"] != "< $ENV{HOME}/unlimited_reservation.users":
        return None
    return re.sub(r"(?m)^(MOST_WAITING_RESERVATIONS = )\d+$", rf"\g<1>{int(values['reservations'])}", text, count=1)


def _with_file(text: str, values: Mapping[str, str]) -> str | None:
    path = values.get("file", "")
    if not re.fullmatch(r"[\w./-]+", path, re.ASCII):
        return None
    return re.sub(r'(?m)^path = "[^"]*"$', f'path = "{path}"', text, count=1)


#: Names of types in the rules of versions before 2.5.5; those behind which anything may follow.
_OLD_TYPES = frozenset(("inner", "container", "timesharing", "allow_classic_ssh"))
#: The first words of the types that OAR 2.5 knew by its own rule, and which the shipped one knows.
_KNOWN_TYPES = frozenset(
    [
        *("container", "deploy", "desktop_computing", "besteffort", "cosystem", "idempotent", "placeholder"),
        *("set_placeholder", "use_placeholder", "allowed", "inner", "timesharing", "token", "noop", "state"),
        *("postpone", "deadline", "expire"),
    ]
)


def _with_types(text: str, values: Mapping[str, str]) -> str | None:
    """Add the job types of the site; return None if one of them cannot be parsed."""
    own = []
    for pattern in re.findall(r"qr/\^(.*?)\$/", values.get("types", "")):
        words = re.findall(r"[a-z_]{4,}", pattern)
        if words and set(words) <= _KNOWN_TYPES | {"user", "name", "standby", "permissive"}:
            continue
        if not re.fullmatch(r"[\w=:+*?()\[\]|.\\-]+", pattern, re.ASCII) or not _compiles(pattern):
            return None
        own.append(f'    r"{pattern}",\n')
    for prefix in filter(None, values.get("prefixes", "").split("|")):
        if re.match(r"\w*", prefix)[0] in _KNOWN_TYPES | _OLD_TYPES:  # type: ignore[index]
            continue
        if not re.fullmatch(r"[\w=:+*.\\-]+", prefix, re.ASCII) or not _compiles(prefix):
            return None
        own.append(f'    r"{prefix}.*",\n')
    for name in re.findall(r'"(\w+)"', values.get("types", "")):
        if name not in _KNOWN_TYPES | _OLD_TYPES:
            own.append(f'    r"{name}",\n')
    mark = '    *config["JOB_TYPES_EXTRA"],\n'
    return text.replace(mark, "".join(own) + mark, 1)


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


#: The standard rules of OAR 2.5, by the sum of what they do.
_STANDARD: Mapping[str, _Standard] = {
    "0f3eea8643fc": _Standard("01_default_queue", _as_shipped),
    "1b16209c86c9": _Standard("02_no_root_nor_oar", _as_shipped),
    "0b2b388fa871": _Standard("03_drained_nodes", _as_shipped),
    "ee47927ae1bf": _Standard("04_admin_queue", _with_group),
    "5e926283c158": _Standard("05_system_properties", _with_properties),
    "75bc5dbecb2c": _Standard("06_besteffort", _as_shipped),
    "f76bf1192467": _Standard("07_no_besteffort_reservation", _as_shipped),
    "2537bf7b88fa": _Standard("08_inner_jobs", _as_shipped),
    "948a98125ec2": _Standard("09_deploy", _as_shipped),
    "acd0e08f9f6d": _Standard("10_whole_nodes_for_deploy", _with_properties),
    "fe0fe9a9c14e": _Standard("11_desktop_computing", _as_shipped),
    "b557b9aa7fdd": _Standard("12_waiting_reservations", _with_reservations),
    "8d4787299d73": _Standard("13_admin_users", _with_file),
    "4955e62a8c47": _Standard("14_interactive_walltime", _with_walltime),
    "0b2ea9347894": _Standard("15_default_walltime", _with_walltime),
    "cca2397f8ea6": _Standard("16_job_types", _with_types),
    "5f2d9dc8c0b4": _Standard("17_default_resources", _as_shipped),
    "8fa851de82a9": _Standard("16_job_types", _with_types),  # before 2.5.5
}
#: Shipped rules that no version before 2.5.5 had.
_SINCE_2_5_5 = frozenset(("03_drained_nodes", "08_inner_jobs"))
#: By what a rule is recognised that a site wrote in the place of a standard one.
_MARKS: Mapping[str, str] = {
    "01_default_queue": r"\$queue_name=",
    "02_no_root_nor_oar": r'\$usereq"root"',
    "03_drained_nodes": "drain",
    "04_admin_queue": "getgrnam",
    "05_system_properties": "finaud_decision",
    "06_besteffort": r'\$queue_name="besteffort"',
    "07_no_besteffort_reservation": r"besteffort.*\$reservationField",
    "08_inner_jobs": "inner",
    "09_deploy": "deploy='YES'",
    "10_whole_nodes_for_deploy": "@bad_resources.*deploy",
    "11_desktop_computing": "desktop_computing='",
    "12_waiting_reservations": "max_nb_resa",
    "13_admin_users": r"open\(FILE",
    "14_interactive_walltime": "INTERACTIVE",
    "15_default_walltime": r"!defined\(\$mold->\[1\]\)",
    "16_job_types": "@types",
    "17_default_resources": "type='default'",
}


# -- adopted rules -----------------------------------------------------------------------------------------------------


def adopt_rules(
    rules: Iterable[OldRule],
    shipped: Mapping[str, OldRule],
    is_python: Callable[[str], bool],
    *,
    is_before_2_5_5: bool = False,
) -> list[AdoptedRule]:
    """Return the rules of the new database: the old rules with their ids, then the missing shipped rules.

    ``shipped``: the rules of this version, by name.  A missing rule is enabled if the old version did not have it, or
    if it replaces a Perl rule that is kept as text.  Otherwise the site deleted it, and it is disabled.
    """
    adopted = [_adopted(rule, shipped, is_python) for rule in rules]
    present = {entry.name for entry in adopted}
    number = max((entry.rule.id for entry in adopted), default=0)
    kept = [_bare(entry.former).replace(" ", "") for entry in adopted if entry.fate is Fate.KEPT and entry.was_enabled]
    added = []
    for offset, name in enumerate((name for name in shipped if name not in present), 1):
        is_new = is_before_2_5_5 and name in _SINCE_2_5_5
        is_wanted = is_new or any(re.search(_MARKS[name], text) for text in kept if name in _MARKS)
        rule = shipped[name]
        enabled = rule.enabled and is_wanted
        new = rule._replace(id=number + offset, enabled=enabled)
        added.append(AdoptedRule(new, Fate.ADDED, name, was_enabled=rule.enabled))
    return [*adopted, *added]


def _adopted(rule: OldRule, shipped: Mapping[str, OldRule], is_python: Callable[[str], bool]) -> AdoptedRule:
    fate, name, text = _recognised(rule, shipped)
    if fate is not Fate.KEPT:
        return AdoptedRule(rule._replace(text=text), fate, name, rule.enabled, rule.text)
    if is_python(rule.text):
        return AdoptedRule(rule, Fate.PYTHON, "", rule.enabled, rule.text)
    return AdoptedRule(rule._replace(enabled=False), Fate.KEPT, "", rule.enabled, rule.text)


def _recognised(rule: OldRule, shipped: Mapping[str, OldRule]) -> tuple[Fate, str, str]:
    """Return how a rule is adopted, the name of the shipped rule and the text that replaces it."""
    for name, ours in shipped.items():
        if rule.text.strip() == ours.text.strip():
            return Fate.SHIPPED, name, ours.text
    total, values = skeleton(rule.text)
    standard = _STANDARD.get(total)
    if standard and standard.name in shipped:
        text = shipped[standard.name].text
        translated = standard.translate(text, values)
        if translated is not None:
            return (Fate.SHIPPED if translated == text else Fate.TRANSLATED), standard.name, translated
    return Fate.KEPT, "", rule.text


def title(text: str) -> str:
    """Return the title of a rule: its first comment or its first line."""
    lines: Sequence[str] = [line.strip("# \t") for line in text.split("\n")]
    return next((line for line in lines if line), "")[:60]

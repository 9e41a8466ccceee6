"""Version of the programs, and revision of the database schema that they need."""

import re
from typing import NamedTuple

VERSION = "3.3.0"
CODENAME = "Aurochs"
#: The schema of these programs, named by the minor release that made it; a fix release never changes it.
SCHEMA = "3.3"
#: What an administrator does whose programs are older than the database.
WAY_FROM_NEWER = "Install OAR {revision} on this machine, or restore the dump that was made before the upgrade."


def version_number(version: str) -> tuple[int, ...]:
    """Return a version as numbers that can be compared.

    >>> version_number("3.0.0.dev3") < version_number("3.1.0") < version_number("3.10")
    True
    """
    return tuple(int(digits) for digits in re.findall(r"\d+", version))


def schema_number(version: str) -> tuple[int, ...]:
    """Return the schema of a version as numbers. Releases of one minor version share it.

    >>> schema_number("3.3.1") == schema_number("3.3")
    True
    """
    return version_number(version)[:2]


class StoredSchema(NamedTuple):
    """The schema of a database."""

    revision: str  #: the release that made it
    oldest: str  #: the oldest release whose programs can use it

    @property
    def is_outdated(self) -> bool:
        """Return whether an upgrade to the schema of these programs is required."""
        return schema_number(self.revision) < schema_number(SCHEMA)

    @property
    def is_unknown(self) -> bool:
        """Return whether the schema is too new for these programs."""
        return schema_number(self.oldest) > schema_number(SCHEMA)

    @property
    def is_newer(self) -> bool:
        """Return whether a later release created it."""
        return schema_number(self.revision) > schema_number(SCHEMA)


def explain_schema_mismatch(schema: StoredSchema | None) -> str:
    """Return why these programs cannot use a database, and the remedy. Return '' if they can use it.

    ``schema`` is None if the database has no schema.
    """
    if schema is None:
        return "No OAR database schema version found. Run on the server: oar-database --setup"
    if not (schema.is_outdated or schema.is_unknown):
        return ""
    needs = f"this program ({VERSION}) needs schema {SCHEMA}"
    text = f"OAR database version mismatch: the database has schema {schema.revision}, {needs}."
    if schema.is_outdated:
        return f"{text} Run on the server: oar-database --setup"
    return f"{text} {WAY_FROM_NEWER.format(revision=schema.revision)}"

"""The audit log (``tx.audit``): rows are added and read; only ``purge`` deletes."""

from collections.abc import Sequence
from typing import NamedTuple

from oar.lib.access.records import Via
from oar.lib.db.statements import Table

#: Rows that name an object: by its kind, by its name, or by a number in the ranges after its kind ("job 1-100,205").
_FIND = r"""
    SELECT date, person, via, action, object, former_value, new_value, reason, audit_id FROM audit_log
    WHERE (%(since)s::bigint IS NULL OR date >= %(since)s) AND (%(until)s::bigint IS NULL OR date <= %(until)s)
      AND (%(before)s::bigint IS NULL OR audit_id < %(before)s)
      AND (%(action)s::text IS NULL OR action = %(action)s)
      AND (%(person)s::text IS NULL OR %(person)s = ANY(regexp_split_to_array(person, '[ (),:]+')))
      AND (%(object)s::text IS NULL
           OR object = %(object)s OR starts_with(object, %(object)s || ' ')
           OR %(object)s = ANY(regexp_split_to_array(object, '[ (),]+'))
           OR (object LIKE '%%, %%' AND %(object)s = ANY(
               SELECT split_part(object, ' ', 1) || ' ' || name
               FROM unnest(string_to_array(substr(object, strpos(object, ' ') + 1), ', ')) AS name))
           OR (split_part(object, ' ', 1) = coalesce(%(kind)s::text, split_part(object, ' ', 1))
               AND split_part(object, ' ', 2) ~ '^[0-9,-]+$'
               AND EXISTS (
                   SELECT FROM regexp_matches(split_part(object, ' ', 2), '(\d{1,18})(?:-(\d{1,18}))?', 'g') AS range,
                       unnest(%(numbers)s::bigint[]) AS number
                   WHERE number BETWEEN range[1]::bigint AND coalesce(range[2], range[1])::bigint)))
    ORDER BY audit_id DESC LIMIT %(limit)s"""
#: Rows such as "resource 5 (node-2)": a deletion is a row for each resource.
_DELETED = """
    SELECT DISTINCT split_part(object, ' ', 2)::bigint FROM audit_log
    WHERE action = 'delete' AND object = 'resource ' || split_part(object, ' ', 2) || ' (' || %s || ')'
      AND split_part(object, ' ', 2) ~ '^[0-9]{1,18}$'"""
_ADD = """
    INSERT INTO audit_log (date, person, via, action, object, former_value, new_value, reason)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"""
#: The account owns the table, and has given up the right to delete (``setup/database/grants.sql``): it takes the right
#: for one transaction. Other sessions never see it.
_PURGE = """
    GRANT DELETE ON public.audit_log TO CURRENT_USER;
    DELETE FROM audit_log WHERE audit_id IN (
        SELECT audit_id FROM audit_log WHERE date < %(date)s ORDER BY date LIMIT %(limit)s)"""
_REVOKE = "REVOKE DELETE ON public.audit_log FROM CURRENT_USER"


class AuditEntry(NamedTuple):
    """A change in the audit log; the values and the reason are '' where there are none."""

    date: int
    person: str
    via: Via
    action: str
    object: str
    former_value: str = ""
    new_value: str = ""
    reason: str = ""
    id: int = 0


class AuditFilter(NamedTuple):
    """Which rows are selected; None: no limit."""

    since: int | None = None
    until: int | None = None
    person: str | None = None  #: one of the names in ``person``
    action: str | None = None
    object: str | None = None  #: a kind, a name, or a kind and a name
    kind: str | None = None  #: of the objects with ``numbers``
    numbers: Sequence[int] = ()  #: numbers of objects
    before: int | None = None  #: an id


class AuditLog(Table):
    """Rows of ``audit_log``."""

    def add(self, entry: AuditEntry) -> None:
        self._tx.execute(_ADD, entry[:-1])  # without the id

    def find(self, selected: AuditFilter, limit: int) -> list[AuditEntry]:
        """Return the newest selected rows, newest first."""
        parameters = {**selected._asdict(), "numbers": list(selected.numbers), "limit": limit}
        rows = self._tx.rows(_FIND, parameters)
        return [AuditEntry(row[0], row[1], Via(row[2]), *row[3:]) for row in rows]

    def deleted_resources(self, host: str) -> list[int]:
        """Return the ids of the resources of a node that were deleted."""
        return self._tx.column(_DELETED, (host,))

    def count_before(self, date: int) -> int:
        """Return the number of rows before a date."""
        count: int = self._tx.value("SELECT count(*) FROM audit_log WHERE date < %s", (date,))
        return count

    def purge(self, before: int, limit: int) -> int:
        """Delete the oldest rows before a date; return their number."""
        deleted = self._tx.execute(_PURGE, {"date": before, "limit": limit})
        self._tx.execute(_REVOKE)
        return deleted

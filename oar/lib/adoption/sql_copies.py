"""How rows of an older database are converted: for each new table, the SELECT on the old database.  Executes nothing.

A column with the same name is copied and cast to the new type.  A column that was renamed, may be missing or must be
completed has its own expression.  Expressions are SQL for the old database: the row is ``t``, the schema ``{s}``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from oar.lib.db.statements import quoted

#: Tables by their names, each with its columns and their types.
Tables = Mapping[str, Mapping[str, str]]


class NewColumn(NamedTuple):
    name: str
    type: str
    required: bool  #: it is never NULL
    default: str = ""  #: an expression of SQL, '' if there is none


class TableCopy(NamedTuple):
    """The source of the rows of a table."""

    table: str
    source: str  #: the table of the old database
    columns: tuple[str, ...]
    query: str
    condition: str = ""  #: which rows are taken, '' = all
    why_not: str = ""  #: what the others are
    counted_as: str = ""  #: where taken rows are counted, if it is not the table


class Loss(NamedTuple):
    """A table or column without equivalent in the new database."""

    table: str
    column: str = ""  #: '' = the whole table


class Property(NamedTuple):
    """A column that the administrators of the old database added to ``resources``."""

    name: str
    type: str


_LIVE_JOBS = "(SELECT j.job_id FROM {s}.jobs j WHERE j.state::text NOT IN ('Terminated', 'Error'))"
_LIVE_MOLDABLES = "(SELECT m.moldable_id FROM {s}.moldable_job_descriptions m WHERE m.moldable_job_id IN " + (
    _LIVE_JOBS + ")"
)
_LIVE_GROUPS = "(SELECT g.res_group_id FROM {s}.job_resource_groups g WHERE g.res_group_moldable_id IN " + (
    _LIVE_MOLDABLES + ")"
)


def _mark(column: str, live: str) -> str:
    """Return the SQL for CURRENT if the row belongs to a live job, else LOG; old versions did not always update it."""
    return f"CASE WHEN t.{column} IN {live} THEN 'CURRENT' ELSE 'LOG' END"


_OPEN_STATE = f"""CASE WHEN t.date_stop <> 0 THEN t.date_stop
    WHEN t.job_id IN {_LIVE_JOBS} AND NOT EXISTS (SELECT FROM {{s}}.job_state_logs n WHERE n.job_id = t.job_id
        AND n.date_stop = 0 AND n.job_state_log_id > t.job_state_log_id) THEN 0
    WHEN t.job_state::text IN ('Terminated', 'Error') THEN greatest(t.date_start, 1)
    ELSE greatest(t.date_start, (SELECT j.stop_time FROM {{s}}.jobs j WHERE j.job_id = t.job_id), 1) END"""
_OPEN_VALUE = """CASE WHEN t.date_stop <> 0 THEN t.date_stop ELSE COALESCE((SELECT min(greatest(n.date_start, 1))
    FROM {s}.resource_logs n WHERE n.date_stop = 0 AND n.resource_id = t.resource_id AND n.attribute = t.attribute
        AND n.resource_log_id > t.resource_log_id), 0) END"""
_STOP_TIME = """CASE WHEN t.state::text NOT IN ('Terminated', 'Error') THEN 0
    ELSE COALESCE(NULLIF(t.stop_time, 0), greatest(t.start_time, t.submission_time, 1)) END"""
_NUMBER_OF_STATE = "CASE t.state::text WHEN 'Alive' THEN 1 WHEN 'Absent' THEN 2 WHEN 'Suspected' THEN 3 ELSE 4 END"

#: What is selected for a column, if it is not the column of the same name.
_EXPRESSIONS: Mapping[tuple[str, str], str] = {
    ("resources", "state_num"): _NUMBER_OF_STATE,
    ("resources", "suspended_jobs"): "'NO'",
    ("resource_logs", "date_stop"): _OPEN_VALUE,
    ("resource_logs", "attribute"): "CASE t.attribute WHEN 'cm_availability' THEN 'available_upto'"
    " ELSE t.attribute END",
    ("jobs", "stop_time"): _STOP_TIME,
    ("job_state_logs", "date_stop"): _OPEN_STATE,
    ("moldable_job_descriptions", "moldable_index"): _mark("moldable_job_id", _LIVE_JOBS),
    ("job_resource_groups", "res_group_index"): _mark("res_group_moldable_id", _LIVE_MOLDABLES),
    ("job_resource_descriptions", "res_job_index"): _mark("res_job_group_id", _LIVE_GROUPS),
    ("job_types", "types_index"): _mark("job_id", _LIVE_JOBS),
    ("job_dependencies", "job_dependency_index"): _mark("job_id", _LIVE_JOBS),
    ("assigned_resources", "assigned_resource_index"): "'LOG'",
    ("frag_jobs", "frag_state"): "CASE WHEN t.frag_id_job IN " + _LIVE_JOBS + " THEN t.frag_state::text"
    " ELSE 'FRAGGED' END",
    ("event_logs", "to_check"): "'NO'",
}
#: The same for columns that are made of another one, if the old table has that.
_FROM_OTHERS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("resources", "available_upto"): ("cm_availability", "t.cm_availability"),
    ("job_types", "types_index"): ("type_index", _mark("job_id", _LIVE_JOBS)),
    ("files", "file_id"): ("idfile", "t.idfile"),
    ("jobs", "cpuset_name"): ("job_user", "left(t.job_user || '_' || t.job_id, 255)"),
    ("jobs", "array_id"): ("job_id", "t.job_id"),
    ("admission_rules", "priority"): ("id", "t.id"),
}
#: What is made of the value that was found.
_CHANGES: Mapping[tuple[str, str], str] = {
    ("resources", "available_upto"): "least(greatest({0}, 0), 2147483647)",
    ("jobs", "array_id"): "COALESCE(NULLIF({0}, 0), t.job_id)",
    ("jobs", "assigned_moldable_job"): "COALESCE({0}, 0)",
}

#: Tables that are taken row by row, in this order.
_WHOLE = (
    *("resources", "resource_logs", "jobs", "moldable_job_descriptions", "job_resource_groups"),
    *("job_resource_descriptions", "job_types", "job_dependencies", "job_state_logs", "assigned_resources"),
    *("frag_jobs", "walltime_change", "challenges", "files", "event_logs", "event_log_hostnames", "accounting"),
    *("gantt_jobs_predictions", "gantt_jobs_predictions_visu"),
    *("gantt_jobs_predictions_log", "gantt_jobs_resources_log"),
)
#: Tables of which a part is taken: which rows, and what the others are.
_PARTS: Mapping[str, tuple[str, str]] = {
    "challenges": (f"t.job_id IN {_LIVE_JOBS}", "secrets of jobs that have ended"),
    **dict.fromkeys(
        (
            "gantt_jobs_predictions",
            "gantt_jobs_predictions_visu",
            "gantt_jobs_resources",
            "gantt_jobs_resources_visu",
        ),
        (f"t.moldable_job_id IN {_LIVE_MOLDABLES}", "of jobs that have ended, and of the last round"),
    ),
}
#: Predictions, whose resources stand in one row here: the table here, and the view that shows them one by one.
_SETS = {
    "gantt_jobs_resources": "gantt_jobs_sets",
    "gantt_jobs_resources_visu": "gantt_jobs_sets_visu",
}
#: Tables that are read as a whole and written one by one.
BY_HAND = ("schema", "queues", "admission_rules", "scheduler")
_PROPERTY = re.compile(r"[a-z][a-z0-9_]{0,62}\Z", re.ASCII)
_INTEGERS = {"smallint", "integer"}
#: Columns of resources that OAR 2.5 has only where administrators added them: any value may stand there.
_OPTIONAL = frozenset({"cpu", "switch"})
_VARCHAR = re.compile(r"character varying\((\d+)\)")
_DROPPED = {("resources", "cm_availability"), ("job_types", "type_index"), ("files", "idfile")}


def copies(old: Tables, new: Mapping[str, list[NewColumn]], schema: str) -> Iterator[TableCopy]:
    """Yield the copies that fill the new tables.  ``schema``: the schema of the old database."""
    for table in _WHOLE:
        if table in old:
            yield _copy(table, old[table], new[table], quoted(schema))
    for source, table in _SETS.items():
        if source in old:
            condition, why_not = _PARTS[source]
            where = condition.format(s=quoted(schema))
            query = (
                f"SELECT t.moldable_job_id, array_agg(DISTINCT t.resource_id) FROM {quoted(schema)}.{source} t"
                f" WHERE {where} GROUP BY t.moldable_job_id"
            )
            yield TableCopy(table, source, ("moldable_job_id", "resources"), query, where, why_not, source)


def _copy(table: str, old: Mapping[str, str], new: list[NewColumn], schema: str) -> TableCopy:
    condition, why_not = _PARTS.get(table, ("", ""))
    chosen = {column.name: text for column in new if (text := _expression(table, column, old))}
    query = f"SELECT {', '.join(chosen.values())} FROM {{s}}.{table} t" + (f" WHERE {condition}" if condition else "")
    return TableCopy(table, table, tuple(chosen), query.replace("{s}", schema), condition.format(s=schema), why_not)


def _expression(table: str, column: NewColumn, old: Mapping[str, str]) -> str:
    """Return the SELECT expression for a column; '' if the column keeps its default."""
    key = table, column.name
    if column.name in old:
        text = _EXPRESSIONS.get(key) or f"t.{quoted(column.name)}"
        kind = old[column.name]
    elif key in _FROM_OTHERS and _FROM_OTHERS[key][0] in old:
        other, text = _FROM_OTHERS[key]
        kind = old[other]
    else:
        return ""
    if table == "resources" and column.name in _OPTIONAL and column.type == "integer" and kind not in _INTEGERS:
        text = f"CASE WHEN t.{column.name}::text ~ '^-?[0-9]{{1,9}}$' THEN t.{column.name}::text END"
    text = _CHANGES.get(key, "{0}").replace("{0}", _cast(text, kind, column.type))
    return f"COALESCE({text}, {column.default})" if column.required and column.default else text


def _cast(text: str, kind: str, wanted: str) -> str:
    """Return the SQL that casts a value to a new type; a text that is too long is truncated."""
    if kind == wanted and "CASE" not in text:
        return text
    length = _VARCHAR.fullmatch(wanted)
    if length:
        return f"left(({text})::text, {length[1]})"
    return f"({text})::{wanted}"


# -- properties of sites, and losses -----------------------------------------------------------------------------------


def properties(old: Mapping[str, str], ours: frozenset[str], wide: frozenset[str]) -> list[Property]:
    """Return the columns that administrators added to ``resources``, with their new types.

    ``ours``: columns of the new schema; ``wide``: columns of large types whose values all fit into an integer.
    """
    added = []
    for name, kind in old.items():
        if name not in ours and ("resources", name) not in _DROPPED and _PROPERTY.match(name):
            is_integer = kind in _INTEGERS or name in wide
            added.append(Property(name, "integer" if is_integer else "character varying(255)"))
    return added


def wide_columns(old: Mapping[str, str], ours: frozenset[str]) -> list[str]:
    """Return the added columns of large types; their values may fit into an integer."""
    return [name for name, kind in old.items() if name not in ours and (kind == "bigint" or kind.startswith("numeric"))]


def losses(old: Tables, new: Mapping[str, list[NewColumn]]) -> Iterator[Loss]:
    """Yield the tables and columns without equivalent; ``new``: the new columns, including properties."""
    known = {*_WHOLE, *_SETS, *BY_HAND}
    for table, columns in old.items():
        if table not in known:
            yield Loss(table)
            continue
        ours = {column.name for column in new.get(table, ())} or {"moldable_job_id", "resource_id"}
        for name in columns:
            if table not in BY_HAND and name not in ours and (table, name) not in _DROPPED:
                yield Loss(table, name)

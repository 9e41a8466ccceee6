"""What a database consists of, as text that can be compared."""

from typing import Any

_QUESTIONS = {
    "columns": """
        SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
               pg_get_expr(d.adbin, d.adrelid), a.attgenerated
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace AND contype <> 'n'""",
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "sequences": """
        SELECT sequencename, data_type::text, increment_by FROM pg_sequences WHERE schemaname = 'public'""",
    "views": """
        SELECT schemaname, viewname, pg_get_viewdef(format('%I.%I', schemaname, viewname)::regclass) FROM pg_views
        WHERE schemaname IN ('public', 'oar_public')""",
    "storage": """
        SELECT relname, reloptions::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'""",
    "grants": """
        SELECT c.oid::regclass::text, r.rolname, g.privilege_type FROM pg_class c
        CROSS JOIN LATERAL aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) g
        JOIN pg_roles r ON r.oid = g.grantee
        WHERE c.relnamespace IN ('public'::regnamespace, 'oar_public'::regnamespace) AND c.relkind IN ('r', 'v')""",
}


def catalog(connection: Any, parts: tuple[str, ...] = tuple(_QUESTIONS)) -> dict[str, list[tuple[Any, ...]]]:
    """Return the answers to the questions named in ``parts``, sorted."""
    found = {}
    with connection.cursor() as cursor:
        cursor.execute("SET search_path TO public")
        for part in parts:
            cursor.execute(_QUESTIONS[part])
            found[part] = sorted(cursor.fetchall(), key=repr)
    return found

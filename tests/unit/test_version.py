"""Programs and schemas: which of them work together."""

import pytest

from oar.lib.base import version
from oar.lib.base.version import SCHEMA, VERSION, StoredSchema, explain_schema_mismatch, schema_number


@pytest.mark.parametrize(
    ("schema", "programs", "text"),
    [
        (StoredSchema("3.3", "3.2.0"), "3.3", ""),
        (StoredSchema("3.4", "3.3.0"), "3.3", ""),  # a frontend, or a server that went back
        (StoredSchema("3.4", "3.4.0"), "3.3", "Install OAR 3.4 on this machine, or restore the dump"),
        (StoredSchema("3.10", "3.10.0"), "3.9", "Install OAR 3.10 on this machine"),
        (StoredSchema("3.2.0", "3.2.0"), "3.3", "Run on the server: oar-database --setup"),
        (
            StoredSchema("2.5.10", "2.5.10"),
            "3.3",
            "the database has schema 2.5.10, this program (3.3.0) needs schema 3.3.",
        ),
        (None, "3.3", "No OAR database schema version found. Run on the server: oar-database --setup"),
    ],
)
def test_a_schema_that_programs_cannot_use_is_refused_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, schema: StoredSchema | None, programs: str, text: str
) -> None:
    monkeypatch.setattr(version, "SCHEMA", programs)
    found = explain_schema_mismatch(schema)
    assert text in found
    assert bool(found) is bool(text)


def test_a_fix_release_has_the_schema_of_its_minor_release() -> None:
    assert schema_number("3.3.1") == schema_number("3.3.0") == schema_number("3.3") != schema_number("3.30")
    assert schema_number(SCHEMA) <= schema_number(VERSION)

"""oar-database --adopt on a site that works: what is refused, by a PostgreSQL that asks for passwords."""

from __future__ import annotations

import pytest

from tests.acceptance.harness import Cluster


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("postgresql://oar:wrong@database/oar", "it refuses the login or the password"),
        ("postgresql://oar@database/oar", "it needs a password"),
        ("postgresql://oar:room@database/oar", "is a database of this generation of OAR"),
    ],
)
def test_a_database_that_cannot_be_taken_is_one_line(cluster: Cluster, address: str, told: str) -> None:
    done = cluster.as_user("root").attempt(f"oar-database --adopt --from {address}")
    assert (done.code, done.out) == (1, "")
    assert told in done.err
    assert done.err.startswith("[ERROR] ")
    assert done.err.count("\n") == 1
    assert "wrong" not in done.err

"""Fixtures of the tests of services and modules on the database."""

import pytest

from oar.lib.config import Config
from oar.lib.db.engine import Database
from oar.lib.messages import Effect
from oar.lib.runtime import Runtime


@pytest.fixture
def sent(database: Database) -> list[Effect]:
    """What is delivered after the commits."""
    effects: list[Effect] = []
    database.deliver = effects.extend
    return effects


@pytest.fixture
def runtime(database: Database) -> Runtime:
    """The configuration as shipped, and the database."""
    return Runtime(Config(job_resource_manager_property_db_field="cpuset"), database)

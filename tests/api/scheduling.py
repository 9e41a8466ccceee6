"""A scheduler beside the API, for tests of what is answered by rounds."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.db.database import Database
from oar.lib.runtime import Runtime
from tests.api.conftest import Api


@contextmanager
def scheduling(api: Api, database: Database) -> Iterator[None]:
    """Make round after round with the configuration of the API, until the end of the block."""
    is_over = threading.Event()
    scheduler = MetaScheduler(Runtime(api.runtime.config, Database(database.settings)))

    def work() -> None:
        while not is_over.wait(0.05):
            scheduler.round()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()

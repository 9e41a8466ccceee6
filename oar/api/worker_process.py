"""A worker of the API: a process that does one task after the other, and ends with the service.

python -m oar.api.worker_process DESCRIPTOR
"""

import os
import sys
from multiprocessing.connection import Connection

from oar.api.workers import Desk, outcome_of
from oar.lib.config.files import Config


def main(descriptor: int) -> int:
    """Run the tasks that are received through a connection until it is closed; return the exit code."""
    os.set_inheritable(descriptor, False)
    with Connection(descriptor) as connection:
        try:
            desk = Desk(connection.recv())
            while True:
                changed, task = connection.recv()
                desk.config = Config(**changed)
                connection.send(outcome_of(task, desk))
        except (EOFError, OSError):
            return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))

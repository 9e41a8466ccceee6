"""What has to be done when the database is one of yesterday: a dump was restored.

What has happened since is not in it.  Numbers that were given since must not be given again, and nodes may have jobs
that nobody knows.  Nothing is asked of anybody: numbers jump ahead, and each node is taken out of service until it was
asked for jobs that were started since (``oar/lib/jobs/recognition.py``) and is swept of what is not its own.

See docs/design/launch.rst, "A restored database".
"""

from typing import TYPE_CHECKING, NamedTuple

from oar.lib.bus.messages import Mail, Tag, Wake
from oar.lib.db.system import JOBS
from oar.lib.history.event_types import EventType
from oar.lib.jobs.states import CURRENT, JobState
from oar.lib.nodes import state_changes

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: So many numbers are left out: more than a site gives between two dumps.
MARGIN = 100_000


class Restoration(NamedTuple):
    """What was done."""

    former_job: int  #: the last job of the database
    first_job: int  #: the number that the next job gets at least
    swept: tuple[str, ...]  #: the nodes that are looked through
    away: tuple[str, ...]  #: the nodes that are looked through when they come back
    current: int  #: jobs that have nodes, as the database knows it
    waiting: int  #: jobs that wait, as the database knows it

    @property
    def report(self) -> str:
        """What an administrator has to know."""
        return "\n".join(
            (
                f"The database has been restored from a dump: its last job is {self.former_job}.",
                f"The next job gets a number from {self.first_job} on; the numbers between are never given.",
                f"{len(self.swept)} nodes are Suspected until they have been asked and swept: jobs that wait as the"
                " database knows it and run there go on; others that it does not know as running are ended; the log"
                " names them.",
                f"{len(self.away)} nodes were not Alive: each is asked and swept in the same way when it comes back.",
                f"{self.current} jobs have nodes as the database knows it: each is asked for on its nodes, and ends if"
                " it is not there.",
                f"{self.waiting} jobs wait as the database knows it: those that have ended since the dump will run"
                " again. Hold or delete them if that must not be.",
            )
        )


def is_older(present: int, newest_job: int) -> bool:
    """Whether a database is older than it was.

    ``present``: the last job number that was drawn; ``newest_job``: the largest number of a job that was ever seen.
    """
    return present < newest_job


def after_restore(tx: "Transaction", newest_job: int = 0) -> Restoration:
    """Make a restored database fit for work.  ``newest_job``: the largest number that is known to have been given."""
    present = tx.system.id_sequences()
    former = tx.system.newest_job()
    first = max(present[JOBS], newest_job) + MARGIN
    tx.system.advance_sequence({name: (first if name == JOBS else last + MARGIN) for name, last in present.items()})
    names = sorted(name for name, is_alive in tx.resources.checkable_nodes().items() if is_alive)
    away = tx.resources.away_nodes()
    state_changes.suspect(tx, names, finaud=True)
    for name in (*names, *away):
        text = f"{name} is to be asked for jobs that were started after the dump"
        tx.events.add(EventType.NODE_SURVEY, 0, text, to_check=True, hosts=[name])
    state_changes.ask_return(tx, names)
    done = Restoration(
        former,
        first + 1,
        tuple(names),
        tuple(away),
        len(tx.jobs.in_states(CURRENT)),
        len(tx.jobs.in_states((JobState.WAITING, JobState.HOLD))),
    )
    tx.events.add(EventType.DATABASE_RESTORED, 0, done.report.replace("\n", " "))
    tx.outbox += [Mail("The database was restored", done.report), Wake(Tag.CHSTATE)]
    return done

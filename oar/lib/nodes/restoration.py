"""Prepare a restored database for operation, or a promoted replica that may lack commits.

It does not contain the events after the dump was made, or the last commits. Job numbers that were used since then must
not be used again, and nodes may run jobs that the database does not contain. No user input is needed. The id sequences
are advanced, and each node is taken out of service until two steps are completed. First, the node reports the jobs that
were started since the dump (``oar/lib/jobs/recovery.py``). Then the sweep ends all other jobs on the node.
See docs/design/launch.rst, "A restored database".
"""

from typing import TYPE_CHECKING, NamedTuple

from oar.lib.bus.messages import Mail, Tag, Wake
from oar.lib.db.system import JOBS, MARGIN
from oar.lib.history.event_types import EventType
from oar.lib.jobs.states import CURRENT, JobState
from oar.lib.nodes import state_changes

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class Restoration(NamedTuple):
    """The result of the preparation."""

    former_job: int  #: the last job of the database
    first_job: int  #: the number that the next job gets at least
    swept: tuple[str, ...]  #: the nodes that are looked through
    away: tuple[str, ...]  #: the nodes that are looked through when they come back
    current: int  #: jobs that have nodes, as the database knows it
    waiting: int  #: jobs that wait, as the database knows it
    lost_job: int | None = None  #: after a promotion: the last job that the former primary is known to have had

    @property
    def report(self) -> str:
        return "\n".join(
            (
                self._cause,
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

    @property
    def _cause(self) -> str:
        if self.lost_job is None:
            return f"The database has been restored from a dump: its last job is {self.former_job}."
        lost = f"; jobs {self.former_job + 1} to {self.lost_job} are lost" if self.lost_job > self.former_job else ""
        return (
            "A replica of the database was promoted, and replication was asynchronous: the last commits may be lost."
            f" Its last job is {self.former_job}{lost}."
        )


def is_older(present: int, newest_job: int) -> bool:
    """Return whether the database is older than it was before.

    ``present``: the last used job number; ``newest_job``: the largest job number that the server has seen.
    """
    return present < newest_job


def after_restore(tx: "Transaction", newest_job: int = 0, *, is_promoted: bool = False) -> Restoration:
    """Prepare a restored database, or a promoted replica, for operation.

    ``newest_job``: the largest job number known to be used.
    """
    present = tx.system.id_sequences()
    former = tx.system.newest_job(newest_job)
    if former == newest_job or not is_promoted:  # later jobs were not submitted after the promotion
        former = tx.system.newest_job()
    first = max(present[JOBS], newest_job) + MARGIN
    tx.system.advance_sequence({name: (first if name == JOBS else last + MARGIN) for name, last in present.items()})
    names = sorted(name for name, is_alive in tx.resources.checkable_nodes().items() if is_alive)
    away = tx.resources.away_nodes()
    state_changes.suspect(tx, names, finaud=True)
    for name in (*names, *away):
        text = f"{name} must be checked for jobs that were started after the dump"
        tx.events.add(EventType.NODE_SURVEY, 0, text, to_check=True, hosts=[name])
    state_changes.ask_return(tx, names)
    done = Restoration(
        former,
        first + 1,
        tuple(names),
        tuple(away),
        len(tx.jobs.in_states(CURRENT)),
        len(tx.jobs.in_states((JobState.WAITING, JobState.HOLD))),
        newest_job if is_promoted else None,
    )
    tx.events.add(EventType.DATABASE_RESTORED, 0, done.report.replace("\n", " "))
    subject = "A replica of the database was promoted" if is_promoted else "The database was restored"
    tx.outbox += [Mail(subject, done.report), Wake(Tag.CHSTATE)]
    return done

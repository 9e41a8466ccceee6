"""What is mailed about arrays: oar/modules/runner/user_notices.py."""

from collections.abc import Sequence

import pytest

from oar.lib.bus.messages import Notice, NoticeTag
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs import lifecycle
from oar.lib.jobs.states import JobState
from oar.modules.runner.user_notices import ArrayMails
from tests.builders import add_job, add_resources


def add_array(database: Database, size: int) -> list[int]:
    """Running jobs of one array."""
    resources = add_resources(database)
    jobs = [add_job(database, JobState.RUNNING, on=resources, notify="mail:alice@example.org") for _ in range(size)]
    with database.begin() as tx:
        for index, job in enumerate(jobs, 1):
            tx.execute("UPDATE jobs SET array_id = %s, array_index = %s WHERE job_id = %s", (jobs[0], index, job))
    return jobs


def end(database: Database, jobs: Sequence[int], *, exit_code: int = 0, to: JobState = JobState.TERMINATED) -> None:
    with database.begin() as tx:
        tx.execute("UPDATE jobs SET exit_code = %s WHERE job_id = ANY(%s)", (exit_code, list(jobs)))
        lifecycle.move_all(tx, jobs, JobState.FINISHING)
        lifecycle.move_all(tx, jobs, to)


def told(mails: ArrayMails, tag: NoticeTag, jobs: Sequence[int], array_id: int) -> list[Notice]:
    notices = [Notice(job, "sweep", "alice", "mail:alice@example.org", "f", tag, "text", array_id) for job in jobs]
    return [mail for notice in notices for mail in mails.instead_of(notice)]


def test_a_job_that_is_in_no_array_is_told_of_as_it_is(database: Database) -> None:
    (job,) = add_array(database, 1)
    mails = ArrayMails(database)
    for tag in (NoticeTag.RUNNING, NoticeTag.SUSPENDED, NoticeTag.SUSPENDED, NoticeTag.END):
        (mail,) = told(mails, tag, [job], job)
        assert (mail.job_id, mail.tag, mail.text) == (job, tag, "text")


@pytest.mark.parametrize("tag", [NoticeTag.RUNNING, NoticeTag.SUSPENDED, NoticeTag.RESUMING, NoticeTag.INFO])
def test_an_array_is_told_of_once(database: Database, tag: NoticeTag) -> None:
    jobs = add_array(database, 3)
    (mail,) = told(ArrayMails(database), tag, jobs[::-1], jobs[0])
    assert (mail.job_id, mail.tag) == (jobs[0], tag)
    assert mail.text == f"text\nThis is job {jobs[2]}, the first of the 3 jobs of the array {jobs[0]}."


def test_the_end_of_an_array_is_the_end_of_its_last_job_whichever_that_is(database: Database) -> None:
    jobs = add_array(database, 4)
    mails = ArrayMails(database)
    end(database, [jobs[3]])
    assert told(mails, NoticeTag.END, [jobs[3]], jobs[0]) == []
    end(database, [jobs[0]], exit_code=256)
    assert told(mails, NoticeTag.END, [jobs[0]], jobs[0]) == []
    end(database, [jobs[1]], to=JobState.ERROR)
    (error,) = told(mails, NoticeTag.ERROR, [jobs[1]], jobs[0])
    assert error.tag == NoticeTag.ERROR
    end(database, [jobs[2]])
    (mail,) = told(mails, NoticeTag.END, [jobs[2]], jobs[0])
    assert (mail.job_id, mail.tag) == (jobs[0], NoticeTag.END)
    assert mail.text.splitlines() == [
        "Array stopped: 4 jobs have ended.",
        "exit code 0: 2",
        "another exit code: 1",
        "in error: 1",
    ]


def test_jobs_that_end_together_end_the_array_once(database: Database) -> None:
    jobs = add_array(database, 5)
    mails = ArrayMails(database)
    end(database, jobs, to=JobState.ERROR)
    assert [mail.tag for mail in told(mails, NoticeTag.ERROR, jobs, jobs[0])] == [NoticeTag.ERROR, NoticeTag.END]


def test_what_was_told_is_known_after_a_restart(database: Database) -> None:
    jobs = add_array(database, 2)
    with database.begin() as tx:
        tx.events.add(EventType.USER_MAIL_NOTIFICATION, jobs[0], "[RUNNING] mail:alice@example.org")
        tx.events.add(EventType.MAIL_NOTIFICATION_ERROR, jobs[0], "[END] mail:alice@example.org: refused")
    end(database, jobs)
    mails = ArrayMails(database)
    assert told(mails, NoticeTag.RUNNING, jobs, jobs[0]) == []
    assert told(mails, NoticeTag.END, jobs, jobs[0]) == []

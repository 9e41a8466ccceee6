"""The sequences from which numbers are drawn that must never be given twice (``tx.id_sequences``)."""

from collections.abc import Mapping

from oar.lib.db.statements import Table

#: The sequence of job numbers: files on nodes, bills and mails name jobs by them.
JOBS = "jobs_job_id_seq"
#: All whose numbers are known outside of the database, or order what is followed.
SEQUENCES = (
    JOBS,
    "moldable_job_descriptions_moldable_id_seq",
    "job_resource_groups_res_group_id_seq",
    "job_state_logs_job_state_log_id_seq",
    "event_logs_event_id_seq",
    "files_file_id_seq",
    "reservations_reservation_id_seq",
)
_PRESENT = """
    SELECT sequencename::text, COALESCE(last_value, 0) FROM pg_sequences
    WHERE schemaname = 'public' AND sequencename = ANY(%s)"""
_ADVANCE = "SELECT setval(%s::regclass, %s)"


class IdSequences(Table):
    """The last numbers that were drawn."""

    def present(self) -> dict[str, int]:
        """Return the last number of each sequence; 0 if none was drawn."""
        return dict(self._tx.rows(_PRESENT, (list(SEQUENCES),)))

    def newest_job(self) -> int:
        """Return the largest number of a job that is there; 0 if there is none."""
        number: int = self._tx.value("SELECT COALESCE(max(job_id), 0) FROM jobs")
        return number

    def advance(self, numbers: Mapping[str, int]) -> None:
        """Let the next numbers of sequences be above these."""
        for sequence, number in numbers.items():
            self._tx.execute(_ADVANCE, (sequence, number))

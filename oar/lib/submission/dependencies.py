"""Dependencies of a submitted or altered job: parse them, and find the required jobs in the database."""

import re
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from oar.lib.jobs.records import Dependency, JobSpec
from oar.lib.jobs.states import DependencyCondition
from oar.lib.submission.checks import BadSubmission, Code, quote
from oar.lib.submission.sql_new_jobs import IndexedDependency

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

_CONDITIONS = "|".join(DependencyCondition)
_SHIFT = r"[\[\]]?[+-]?[0-9]{1,9}"
_DEPENDENCY = rf"([0-9]{{1,18}})(\[\*?\])?(?::({_CONDITIONS}))?(?:\s*,\s*({_SHIFT})?\s*(?:,\s*({_SHIFT})?)?)?\s*\Z"
_FORMS = (
    "write id[:ok|notok|any|start][,min[,max]]. In place of id: id[*] for all jobs of an array, id[] for the job of the"
    " same index."
)

#: Dependencies of a submission, at most; an array that waits for all jobs of an array has one for each pair.
MOST_DEPENDENCIES = 100_000


class Members(StrEnum):
    """The jobs that a dependency requires."""

    ONE = ""  #: one job
    ALL = "[*]"  #: all jobs of an array
    SAME_INDEX = "[]"  #: of each job: the job of the same index in an array; of a single job: all jobs of the array


def parse(texts: Iterable[str]) -> tuple[Dependency, ...]:
    """Parse each ``-a`` except those on arrays; if several name the same job, the last counts.  Raises BadSubmission.

    ``job_id`` is 0.
    >>> parse(["12:ok,60,]600", "501[]"])
    (Dependency(job_id=0, required=12, condition='ok', min_shift='60', max_shift=']600'),)
    """
    return _select(texts, Members.ONE)


def has_same_index(spec: JobSpec) -> bool:
    """Return whether each job of a submission depends on the job of the same index in an array."""
    return bool(_select(spec.dependencies, Members.SAME_INDEX))


def _select(texts: Iterable[str], members: Members) -> tuple[Dependency, ...]:
    return tuple(dependency for (_, required), dependency in _parse(texts).items() if required is members)


def _parse(texts: Iterable[str]) -> dict[tuple[int, Members], Dependency]:
    """Return the dependencies by required job or array, and by the required members."""
    dependencies: dict[tuple[int, Members], Dependency] = {}
    for text in texts:
        match = re.match(_DEPENDENCY, text.strip())
        if not match:
            raise BadSubmission(Code.REQUEST, f"bad dependency {quote(text)}: {_FORMS}")
        condition, least, most = (part or "" for part in match.groups()[2:])
        key = int(match[1]), Members(match[2] or "")
        dependencies[key] = Dependency(0, int(match[1]), condition, least, most)
    return dependencies


def find(tx: "Transaction", spec: JobSpec) -> tuple[Dependency, ...]:
    """Return the dependencies that all jobs of a submission share.

    Raises BadSubmission if a job or an array does not exist, or if there are too many dependencies.
    """
    dependencies = {dependency.required: dependency for dependency in parse(spec.dependencies)}
    if dependencies:
        _check_jobs(tx, dependencies)
    arrays = _select(spec.dependencies, Members.ALL)
    if spec.array_size == 1:
        arrays += _select(spec.dependencies, Members.SAME_INDEX)
    for array in arrays:
        for member in _members(tx, array.required).values():
            dependencies.setdefault(member, array._replace(required=member))
    if len(dependencies) * spec.array_size > MOST_DEPENDENCIES:
        number = len(dependencies) * spec.array_size
        text = f"{number} ({spec.array_size} jobs on {len(dependencies)} jobs each): the limit is {MOST_DEPENDENCIES}"
        hint = "Let one job depend on them, and the others on that job."
        raise BadSubmission(Code.REQUEST, f"too many dependencies: {text}. {hint}")
    return tuple(dependencies.values())


def _members(tx: "Transaction", array: int) -> dict[int, int]:
    members = tx.submission_checks.members_of_array(array)
    if not members:
        raise BadSubmission(Code.REQUEST, f"dependency on unknown array {array}.")
    return members


def _check_jobs(tx: "Transaction", job_ids: Collection[int]) -> None:
    from oar.lib.jobs import control

    states = tx.jobs.states(list(job_ids))
    for job_id in job_ids:
        if job_id not in states:
            raise BadSubmission(Code.REQUEST, f"dependency on unknown job {job_id}.")
    for job_id, text in control.frame_texts(tx, list(states)).items():
        raise BadSubmission(Code.REQUEST, f"Cannot depend on {job_id} ; {text}")


def warnings(tx: "Transaction", spec: JobSpec) -> Iterator[str]:
    """Yield warnings about dependencies that may not mean what the user intended."""
    dependencies = parse(spec.dependencies)
    # a window whose number is also the id of another job of the user
    seconds = {dependency: int(dependency.min_shift) for dependency in dependencies if dependency.min_shift.isdecimal()}
    owners = tx.jobs.owners(seconds.values()) if seconds else {}
    for dependency, job in seconds.items():
        if owners.get(job) == spec.user and not dependency.max_shift:
            required = dependency.required
            yield (
                f"-a {required},{job} means {job} seconds after the start of job {required};"
                f" for both jobs write -a {required} -a {job}."
            )
    # the first job of an array, whose id is also the array id
    required_ids = [dependency.required for dependency in dependencies]
    sizes = tx.submission_checks.array_sizes(required_ids) if required_ids else {}
    for job, size in sizes.items():
        if size > 1:
            yield (
                f"-a {job} waits for job {job} only, which is one of the {size} jobs of array {job};"
                f" for all of them write -a '{job}[*]'."
            )


def find_indexed(tx: "Transaction", spec: JobSpec) -> list[IndexedDependency]:
    """Return the dependencies of each job on the job with the same index in another array.

    A single job has none: it depends on all jobs of the array.  Raises BadSubmission if an array does not exist or has
    no job with such an index.
    """
    indexes = range(1, spec.array_size + 1)
    dependencies = []
    for _, array, *others in _select(spec.dependencies, Members.SAME_INDEX) if spec.array_size > 1 else ():
        members = _members(tx, array)
        for index in indexes:
            if index not in members:
                raise BadSubmission(Code.REQUEST, f"array {array} has no job with index {index}.")
        dependencies.append(IndexedDependency([members[index] for index in indexes], *others))
    return dependencies


def find_for_each_job(tx: "Transaction", spec: JobSpec) -> list[tuple[Dependency, ...]]:
    """Return the dependencies of each job of a submission; ``job_id`` is 0.  Raises BadSubmission."""
    common, indexed = find(tx, spec), find_indexed(tx, spec)
    own = [[Dependency(0, required, *others) for required in jobs] for jobs, *others in indexed]
    return [(*common, *(dependencies[index] for dependencies in own)) for index in range(spec.array_size)]

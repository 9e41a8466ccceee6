"""Dependencies of a submitted or altered job: parse them, and find the required jobs in the database."""

import re
from collections.abc import Iterable
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

#: So many dependencies a submission may have; an array that waits for all jobs of an array has one for each pair.
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
    return tuple(dependency for (_, each), dependency in _parse(texts).items() if each is members)


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
    dependencies = {each.required: each for each in _find_ones(tx, spec)}
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


def _find_ones(tx: "Transaction", spec: JobSpec) -> tuple[Dependency, ...]:
    dependencies = parse(spec.dependencies)
    if dependencies:
        from oar.lib.jobs import control

        states = tx.jobs.states([dependency.required for dependency in dependencies])
        for dependency in dependencies:
            if dependency.required not in states:
                raise BadSubmission(Code.REQUEST, f"dependency on unknown job {dependency.required}.")
        for job_id, text in control.frame_texts(tx, list(states)).items():
            raise BadSubmission(Code.REQUEST, f"Cannot depend on {job_id} ; {text}")
    return dependencies


def warnings(tx: "Transaction", spec: JobSpec) -> list[str]:
    """Return warnings about dependencies that may not mean what the user intended."""
    return [*_warn_about_windows(tx, spec), *_warn_about_arrays(tx, spec)]


def _warn_about_arrays(tx: "Transaction", spec: JobSpec) -> list[str]:
    """Return warnings about dependencies on the first job of an array, whose id is also the array id."""
    required = [each.required for each in parse(spec.dependencies)]
    sizes = tx.submission_checks.array_sizes(required) if required else {}
    return [
        f"-a {job} waits for job {job} only, which is one of the {size} jobs of array {job};"
        f" for all of them write -a '{job}[*]'."
        for job, size in sizes.items()
        if size > 1
    ]


def _warn_about_windows(tx: "Transaction", spec: JobSpec) -> list[str]:
    """Return warnings about a window whose number is also the id of another job of the user."""
    seconds = {each: int(each.min_shift) for each in parse(spec.dependencies) if each.min_shift.isdecimal()}
    owners = tx.jobs.owners(seconds.values()) if seconds else {}
    return [
        f"-a {each.required},{job} means {job} seconds after the start of job {each.required};"
        f" for both jobs write -a {each.required} -a {job}."
        for each, job in seconds.items()
        if owners.get(job) == spec.user and not each.max_shift
    ]


def find_indexed(tx: "Transaction", spec: JobSpec) -> list[IndexedDependency]:
    """Return the dependencies of each job on the job with the same index in another array.

    A single job has none: it depends on all jobs of the array.  Raises BadSubmission if an array does not exist or has
    no job with such an index.
    """
    indexes = range(1, spec.array_size + 1)
    dependencies = []
    for dependency in _select(spec.dependencies, Members.SAME_INDEX) if spec.array_size > 1 else ():
        array = dependency.required
        members = _members(tx, array)
        for index in indexes:
            if index not in members:
                raise BadSubmission(Code.REQUEST, f"array {array} has no job with index {index}.")
        required = [members[index] for index in indexes]
        dependencies.append(
            IndexedDependency(required, dependency.condition, dependency.min_shift, dependency.max_shift)
        )
    return dependencies


def find_for_each_job(tx: "Transaction", spec: JobSpec) -> list[tuple[Dependency, ...]]:
    """Return the dependencies of each job of a submission; ``job_id`` is 0.  Raises BadSubmission."""
    common, indexed = find(tx, spec), find_indexed(tx, spec)
    return [
        (
            *common,
            *(
                Dependency(
                    0, dependency.required[index], dependency.condition, dependency.min_shift, dependency.max_shift
                )
                for dependency in indexed
            ),
        )
        for index in range(spec.array_size)
    ]

"""Imports point down, never in a circle, and every library has its home.

Imports inside functions and for type checking count as well: a circle of types is still a circle.

See CONTRIBUTING.md, "Seven rules".
"""

import ast
import graphlib
import re
import subprocess
import sys
from functools import cache

import pytest

from tests.unit.sources import ROOT, Module, modules, tools

#: What knows nothing of the database: services, planner and processes may all use it.
INFRASTRUCTURE = {
    "oar.lib.apps",
    "oar.lib.base",
    "oar.lib.bus",
    "oar.lib.conditions",
    "oar.lib.config",
    "oar.lib.notifications",
    "oar.lib.remote",
    "oar.lib.user_files",
}
#: Subjects: in each, records import records only, statements (``sql*.py``) import nothing that uses statements.
SUBJECTS = {
    "oar.lib.access",
    "oar.lib.accounts",
    "oar.lib.adoption",
    "oar.lib.desktop",
    "oar.lib.history",
    "oar.lib.jobs",
    "oar.lib.monitoring",
    "oar.lib.nodes",
    "oar.lib.planning",
    "oar.lib.reservations",
    "oar.lib.submission",
}
RECORDS = re.compile(r"(records|states|fields|reasons|ends|event_types|\w+_records)")
PLANNER = {
    "oar.kao.facts",
    "oar.kao.planner.resources",
    "oar.kao.planner.limits",
    "oar.kao.planner.placement",
    "oar.kao.planner.advance_reservations",
    "oar.kao.planner",
}
#: Which packages each package above the library may use, besides itself.
BELOW_PLANNER = {
    "oar.lib.base",
    "oar.lib.access",
    "oar.lib.accounts",
    "oar.lib.jobs",
    "oar.lib.nodes",
    "oar.lib.reservations",
    "oar.lib.submission",
}
BELOW_ROUNDS = {*INFRASTRUCTURE, *SUBJECTS, *PLANNER, "oar.lib.db", "oar.lib"}
ROUNDS = {
    "oar.kao.rounds.reading",
    "oar.kao.rounds.site",
    "oar.kao.rounds.writing",
    "oar.kao.rounds.hypothetical",
    "oar.kao.rounds",
}
BELOW_FACES = {*BELOW_ROUNDS, *ROUNDS}
#: The API: one file for each subject, and the older dialects.
API = {"oar.api", "oar.api.legacy"}
MAY_USE: dict[str, set[str]] = {
    "oar.kao.facts": BELOW_PLANNER,
    "oar.kao.planner.resources": {*BELOW_PLANNER, "oar.kao.facts"},
    "oar.kao.planner.limits": {*BELOW_PLANNER, "oar.kao.facts"},
    "oar.kao.planner.placement": {
        *BELOW_PLANNER,
        "oar.kao.facts",
        "oar.kao.planner.resources",
        "oar.kao.planner.limits",
    },
    "oar.kao.planner.advance_reservations": {*BELOW_PLANNER, *PLANNER - {"oar.kao.planner"}},
    "oar.kao.planner": {*BELOW_PLANNER, *PLANNER},
    "oar.kao.rounds.reading": BELOW_ROUNDS,
    "oar.kao.rounds.site": {*BELOW_ROUNDS, "oar.kao.rounds.reading"},
    "oar.kao.rounds.writing": {*BELOW_ROUNDS, "oar.kao.rounds.reading"},
    "oar.kao.rounds.hypothetical": {*BELOW_ROUNDS, "oar.kao.rounds.reading", "oar.kao.rounds.site"},
    "oar.kao.rounds": BELOW_FACES,
    "oar.modules": {*BELOW_FACES, "oar.modules.runner", "oar.modules.runner.actions"},
    "oar.modules.runner.actions": BELOW_FACES,
    "oar.modules.runner": {*BELOW_FACES, "oar.modules.runner.actions"},
    "oar.cli.common": BELOW_FACES,
    "oar.cli.oarsub_parts": {*BELOW_FACES, "oar.cli.common"},
    "oar.cli.oarstat_parts": {*BELOW_FACES, "oar.cli.common"},
    "oar.cli.command_server": {*BELOW_FACES, "oar.cli.common"},
    "oar.web": set(),
    **{name: {*BELOW_FACES, *API, "oar.web"} for name in API},
    "oar.cli": {*BELOW_FACES, "oar.api", "oar.cli.common", "oar.cli.oarsub_parts", "oar.cli.oarstat_parts"},
}

#: Where a library may be imported: everywhere under these prefixes.
HOMES = {
    "psycopg2": ("oar.lib.db",),
    "sqlalchemy": ("oar.lib.db", "oar.lib.submission.rule_names"),
    "alembic": ("oar.lib.db",),
    "zmq": ("oar.lib.bus.sockets",),
    "paramiko": ("oar.lib.remote",),
    "cryptography": ("oar.lib.submission.job_keys",),  # comes with paramiko: the keys of jobs are made with it
    "yaml": ("oar.lib.base.formats", "oar.web.site_file"),
    "click": ("oar.cli",),
    "dateutil": ("oar.lib.reservations.recurrence",),
    "rich": ("oar.cli",),
    "uvicorn": ("oar.api",),
    "uvloop": ("oar.api",),
    "starlette": ("oar.api", "oar.web"),
    "anyio": ("oar.api",),
    "orjson": ("oar.api",),
    "pydantic": ("oar.api",),
    "typing_extensions": ("oar.api",),  # comes with pydantic, which reads no TypedDict of Python 3.11
    "jwt": ("oar.api",),
    "bcrypt": ("oar.api.passwords",),
    "prometheus_client": ("oar.api",),
    "jinja2": ("oar.web",),
}

#: What the planner decides from must be given to it: neither it nor what it imports reaches for anything.
OUTER_WORLD = {"socket", "subprocess", "zmq", "smtplib", "multiprocessing", "random", "logging", "threading"}

#: Modules of subjects that reach for the outer world; all others leave that to the processes.
REACHING = {
    "oar.lib.access.name_service",
    "oar.lib.adoption.sql_adoption",
    "oar.lib.nodes.energy",
    "oar.lib.nodes.ping_checker",
    "oar.lib.nodes.phoenix",
    "oar.lib.submission.oarsub_lines",
}

USER_COMMANDS = ("oarsub", "oarstat", "oardel", "oarnodes", "oarhold", "oarresume", "oarwalltime", "oaralter")
HEAVY = {
    "alembic", "asyncio", "concurrent", "cryptography", "email", "http", "importlib.metadata", "logging",
    "multiprocessing", "paramiko", "rich", "sqlalchemy", "ssl", "subprocess", "unittest", "urllib.request", "xml",
    "yaml", "zmq",
}  # fmt: skip


def fits(name: str, prefix: str) -> bool:
    """A prefix fits at a dot or at the end."""
    return name == prefix or name.startswith(f"{prefix}.")


def package(name: str) -> str:
    """Return the package in which a module lies; a package lies in itself."""
    return name if modules()[name].is_package else name.rpartition(".")[0]


def imported_module(name: str) -> str | None:
    """Return the module of ours that an imported name is, or is in."""
    if name in modules():
        return name
    parent = name.rpartition(".")[0]
    return parent if parent in modules() else None


@cache
def arrows() -> list[tuple[str, str]]:
    """Return which module imports which."""
    return [
        (module.name, target)
        for module in modules().values()
        for target in map(imported_module, module.imports)
        if target and target != module.name
    ]


@cache
def graph() -> dict[str, set[str]]:
    """Return the modules that each module imports directly."""
    found: dict[str, set[str]] = {name: set() for name in modules()}
    for source, target in arrows():
        found[source].add(target)
    return found


def all_imports(name: str) -> set[str]:
    """Return the modules that a module imports, directly or by others."""
    reached: set[str] = set()
    todo = [name]
    while todo:
        for target in graph()[todo.pop()] - reached:
            reached.add(target)
            todo.append(target)
    return reached


def has_statements(name: str) -> bool:
    subject, _, file = name.rpartition(".")
    return fits(name, "oar.lib.db") or (subject in SUBJECTS and file.startswith("sql_"))


def uses_the_database(name: str) -> bool:
    return has_statements(name) or any(map(has_statements, all_imports(name)))


def test_each_package_has_its_floor() -> None:
    places = {package(module.name) for module in modules().values() if not module.is_package}
    assert places == set(MAY_USE) | INFRASTRUCTURE | SUBJECTS | {"oar.lib", "oar.lib.db", "oar.lib.facts"}


def test_base_imports_nothing_of_oar() -> None:
    assert not [
        arrow for arrow in arrows() if package(arrow[0]) == "oar.lib.base" and package(arrow[1]) != "oar.lib.base"
    ]


def test_infrastructure_and_planner_do_not_know_the_database() -> None:
    below = INFRASTRUCTURE | PLANNER
    assert not [name for name in modules() if package(name) in below and uses_the_database(name)]


def test_records_import_records_only() -> None:
    def is_record(name: str) -> bool:
        return bool(RECORDS.fullmatch(name.rpartition(".")[2])) and fits(name, "oar.lib")

    assert not [
        (source, target)
        for source, target in arrows()
        if is_record(source) and not is_record(target) and package(target) != "oar.lib.base"
    ]


def test_statements_do_not_know_services() -> None:
    """They import other statements, and what knows no database."""
    assert not [
        (source, target)
        for source, target in arrows()
        if has_statements(source) and not has_statements(target) and uses_the_database(target)
    ]


def test_imports_point_down() -> None:
    assert not [
        (source, target)
        for source, target in arrows()
        if package(source) in MAY_USE
        and package(target) not in MAY_USE[package(source)] | {package(source)}
        and not modules()[target].is_package
    ]


def test_no_circles() -> None:
    """The order of the graph exists: CycleError shows the way round otherwise."""
    graphlib.TopologicalSorter(graph()).prepare()


def test_every_library_is_imported_at_home_only() -> None:
    strangers = []
    for module in modules().values():
        for name in module.imports:
            library = name.partition(".")[0]
            known = library == "oar" or library in sys.stdlib_module_names
            known |= library in {"psycopg2", "sqlalchemy"} and has_statements(module.name)
            if not known and not any(fits(module.name, home) for home in HOMES.get(library, ())):
                strangers.append((module.name, library))
    assert not strangers


def test_what_decides_reaches_for_nothing() -> None:
    planner = {name for name in modules() if package(name) in PLANNER}
    pure = planner.union(*map(all_imports, planner))
    subjects = {name for name in modules() if package(name) in SUBJECTS} - REACHING
    assert not [
        (name, imported)
        for name in sorted(pure | subjects)
        for imported in modules()[name].imports
        if imported.partition(".")[0] in OUTER_WORLD
    ]


def test_programs_of_nodes_stand_alone() -> None:
    """Standard library only, and each other: they travel to nodes where nothing of ours is installed."""
    own = {name.removesuffix(".py") for name in tools()}
    strangers = [
        (tool.name, name)
        for tool in tools().values()
        for name in tool.imports
        if name.partition(".")[0] not in sys.stdlib_module_names and name.partition(".")[0] not in own
    ]
    assert not strangers


SQL = re.compile(
    r"\s*(SELECT\s.*\bFROM\b|INSERT\s+INTO\s|UPDATE\s+\S+\s+SET\s|DELETE\s+FROM\s|(CREATE|ALTER|DROP)\s+"
    r"(TABLE|INDEX|VIEW|ROLE|DATABASE)\b|TRUNCATE\s|LOCK\s+TABLE\s|WITH\s+\w+\s+AS\s*\()",
    re.DOTALL,
)
RAW = {"execute", "rows", "row", "value", "column", "rows_and_names", "insert_many", "insert_returning"}


def outside_the_database() -> list[Module]:
    return [module for module in modules().values() if not has_statements(module.name)]


def test_sql_is_written_in_the_database_package_only() -> None:
    assert not [
        f"{module.path.relative_to(ROOT)}:{line}: {text.strip()[:60]}"
        for module in outside_the_database()
        for line, text in module.texts()
        if SQL.match(text)
    ]


def test_nobody_else_sends_text_to_the_database() -> None:
    assert not [
        f"{module.path.relative_to(ROOT)}:{node.lineno}"
        for module in outside_the_database()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and node.attr in RAW
        and isinstance(node.value, ast.Name)
        and node.value.id == "tx"
    ]


@pytest.mark.parametrize(
    ("table", "door"), [("jobs", "oar.lib.jobs.lifecycle"), ("resources", "oar.lib.nodes.state_changes")]
)
def test_states_change_through_one_door(table: str, door: str) -> None:
    """``tx.jobs.move`` is called by lifecycle alone, ``tx.resources.move`` by state_changes alone."""
    callers = {
        module.name
        for module in modules().values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "move"
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == table
    }
    assert callers <= {door}


def run_python(program: str, *arguments: str) -> str:
    """Run a program in a bare interpreter that finds our package and our libraries; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-B", "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


IMPORT_ALL = """
import importlib, os, signal, sys, threading

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FORBIDDEN = ("socket.", "subprocess.", "os.fork", "os.exec", "os.posix_spawn", "os.system", "os.putenv", "os.unsetenv",
             "os.chdir", "os.mkdir", "os.remove", "os.rename")
current = ""

def watch(event, arguments):
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
    if current and (writes or event.startswith(FORBIDDEN)):
        raise RuntimeError(f"{current}: {event} {arguments}")

def no_signals(*arguments):
    raise RuntimeError(f"{current}: signal.signal {arguments}")

sys.addaudithook(watch)
signal.signal = no_signals
before = dict(os.environ)
for current in sys.argv[1:]:
    importlib.import_module(current)
    if "logging" in sys.modules:
        assert not sys.modules["logging"].root.handlers, f"{current} sets up logging"
    assert threading.active_count() == 1, f"{current} starts a thread"
    assert dict(os.environ) == before, f"{current} changes the environment"
"""


def test_importing_a_module_does_nothing() -> None:
    """No file is written, no socket opened, no process, thread or signal handler made, no log set up."""
    run_python(IMPORT_ALL, *modules())


@pytest.mark.parametrize("command", [name for name in USER_COMMANDS if f"oar.cli.{name}" in modules()])
def test_user_commands_start_light(command: str) -> None:
    """They load click and psycopg2; whatever is heavy is imported by the function that needs it."""
    loaded = run_python(f"import oar.cli.{command}\nprint(*sys.modules)").split()
    assert not [name for name in loaded if any(fits(name, heavy) for heavy in HEAVY)]


def test_packages_hold_nothing_but_their_description() -> None:
    assert not [
        str(module.path)
        for module in modules().values()
        if module.is_package and not all(isinstance(part, ast.Expr) for part in module.tree.body)
    ]

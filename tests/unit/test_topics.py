"""Listeners are told of every change: whoever writes a table names the topic of that table."""

import ast
import re
from collections.abc import Iterator, Mapping
from importlib import import_module

import pytest

from oar.lib.bus.messages import Topic
from oar.lib.db.transaction import Lazy, Transaction
from tests.unit.sources import modules

#: Tables with what listeners are told of their changes.
TABLES = {
    Topic.JOBS: (
        "jobs job_types job_dependencies job_state_logs moldable_job_descriptions job_resource_groups"
        " job_resource_descriptions assigned_resources frag_jobs walltime_change job_reasons job_waits job_ends"
        " job_usage auto_resubmissions"
    ),
    Topic.RESOURCES: "resources resource_logs state_reasons",
    Topic.GANTT: "gantt_jobs_predictions gantt_jobs_sets job_predictions",
    Topic.QUEUES: "queues",
    Topic.ACCOUNTING: "accounting",
    Topic.EVENTS: "event_logs",
    Topic.TOKENS: "api_tokens",
    Topic.RESERVATIONS: (
        "reservations reservation_acl reservation_changes reservation_intervals reservation_jobs reservation_logs"
        " reservation_revisions reservation_usage reservation_series usersets userset_entries"
    ),
}
TOPIC_OF = {table: topic for topic, tables in TABLES.items() for table in tables.split()}
#: Tables that nobody is shown, and copies of tables that have a topic.
SILENT = {
    *("challenges", "job_runs", "files", "admission_rules", "admission_rules_log", "event_log_hostnames", "token_jobs"),
    *("projects", "project_members", "user_settings", "project_budgets", "accounting_costs", "audit_log"),
    *("gantt_jobs_predictions_visu", "gantt_jobs_sets_visu", "gantt_jobs_predictions_log", "gantt_jobs_resources_log"),
    *("submission_keys", "history_positions", "policy_log", "launch_holds", "task_runs", "occupancy_hours"),
    *("server_state", "server_generation", "servers", "outbox", "announcements"),
    "job_curves",  # pages ask for the curves that they show
}
#: Changes that are nothing to look at: the date of a round that changed nothing, a mark that a job has been counted,
#: the date when a token was used, the date of the last job of a resource, which is told as the end of that job.
NOT_SHOWN = {
    ("plan.store_date", Topic.GANTT),
    ("accounting.count", Topic.JOBS),
    ("access.use_token", Topic.TOKENS),
    ("jobs.close", Topic.RESOURCES),
    ("desktop_computers.note_call", Topic.RESOURCES),  # a date of the system
}
_WRITES = re.compile(r"(?:\bINSERT INTO|(?<!NO KEY )(?<!DO )(?<!FOR )\bUPDATE|\bDELETE FROM|\bALTER TABLE) (\w+)")


class Methods:
    """The methods of a table: which texts they use, which methods they call, which topics they name."""

    def __init__(self, module: str, node: ast.ClassDef) -> None:
        self.constants = vars(import_module(module))
        self.nodes = {child.name: child for child in node.body if isinstance(child, ast.FunctionDef)}

    def reached(self, name: str) -> Iterator[ast.AST]:
        """Give the nodes of a method and of the methods of its table that it calls."""
        for node in ast.walk(self.nodes[name]):
            yield node
            if isinstance(node, ast.Attribute) and node.attr in self.nodes and node.attr != name:
                yield from self.reached(node.attr)

    def written(self, name: str) -> set[str]:
        """Return the tables that a method writes."""
        return {table for text in self._texts(name) for table in _WRITES.findall(text)}

    def topics(self, name: str) -> set[Topic]:
        """Return the topics that a method names."""
        return {
            Topic[node.attr]
            for node in self.reached(name)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Topic"
        }

    def _texts(self, name: str) -> Iterator[str]:
        for node in self.reached(name):
            value = self.constants.get(node.id) if isinstance(node, ast.Name) else getattr(node, "value", None)
            for text in value if isinstance(value, tuple) else (value,):
                if isinstance(text, str):
                    yield text


def _tables() -> Mapping[str, Methods]:
    """Return the methods of each class of statements, by its attribute of a transaction."""
    return {
        attribute: Methods(value.module, node)
        for attribute, value in vars(Transaction).items()
        if isinstance(value, Lazy)
        for node in modules()[value.module].tree.body
        if isinstance(node, ast.ClassDef) and node.name == value.class_name
    }


TABLE_CLASSES = _tables()
METHODS = [
    f"{table}.{name}" for table, methods in TABLE_CLASSES.items() for name in methods.nodes if not name.startswith("_")
]


@pytest.mark.parametrize("method", METHODS)
def test_who_writes_a_table_names_its_topic(method: str) -> None:
    table, _, name = method.partition(".")
    methods = TABLE_CLASSES[table]
    written = methods.written(name)
    assert written <= TOPIC_OF.keys() | SILENT
    wanted = {TOPIC_OF[each] for each in written if each in TOPIC_OF}
    missing = {topic for topic in wanted - methods.topics(name) if (method, topic) not in NOT_SHOWN}
    assert not missing


def test_the_methods_that_write_are_found() -> None:
    assert TABLE_CLASSES["jobs"].written("close") >= {"job_types", "resources", "gantt_jobs_predictions"}
    assert TABLE_CLASSES["queues"].written("set_state") == {"queues"}
    assert TABLE_CLASSES["plan"].written("change") >= {"gantt_jobs_predictions"}
    assert not TABLE_CLASSES["jobs"].written("states")

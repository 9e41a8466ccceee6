"""The tables of projects, their members and their budgets, the audit log, and announcements."""

from sqlalchemy import Column, Float, Index, String

from oar.lib.access.records import Via
from oar.lib.accounts.states import MemberRole, OnExhaustion, ProjectState
from oar.lib.db.schema_tables import integer, key, long_text, number, one_of, sequence_number, string, table

table(
    "projects",
    "Projects that jobs may name; jobs.project remains a text. parent: NULL or a project. Dates 0: no limit.",
    Column("project_name", String(255), primary_key=True),
    long_text("description"),
    Column("parent", String(255)),
    one_of("state", 8, "open", ProjectState),
    number("start_date"),
    number("end_date"),
    integer("shares", 1),
    Index("projects_parent", "parent"),
)
table(
    "project_members",
    "Members of projects: login names, and @NAME for a userset or a group of the system.",
    Column("project_name", String(255), primary_key=True),
    Column("entry", String(255), primary_key=True),
    one_of("role", 8, "member", MemberRole),
    integer("shares", 1),
    Index("project_members_entry", "entry"),
)
table(
    "user_settings",
    "Settings of users.",
    Column("user_name", String(255), primary_key=True),
    string("default_project", 255),
)
table(
    "project_budgets",
    "Resource hours of projects and their sub-projects in a period, whose end is not part of it."
    " notified: the last threshold in percent that managers got a mail about.",
    Column("project_name", String(255), primary_key=True),
    key("period_start"),
    number("period_end"),
    Column("resource_hours", Float(53), nullable=False),
    one_of("on_exhaustion", 10, "refuse", OnExhaustion),
    integer("notified"),
)
table(
    "accounting_costs",
    "What a project used in a window of accounting beyond its resource seconds, by the property cost of resources.",
    key("window_start"),
    key("window_stop"),
    Column("accounting_project", String(255), primary_key=True),
    Column("extra", Float(53), nullable=False),
    Index("accounting_costs_by_project", "accounting_project", "window_start"),
)

table(
    "audit_log",
    "Changes by administrators. The account of commands adds and reads rows; RETENTION_AUDIT alone deletes them.",
    sequence_number("audit_id"),
    number("date"),
    string("person", 255),
    one_of("via", 8, Via.COMMAND, Via),
    string("action", 32),
    long_text("object"),
    long_text("former_value"),
    long_text("new_value"),
    long_text("reason"),
    Index("audit_log_date", "date"),
)

table(
    "announcements",
    "Texts of administrators that users see on the pages and after a submission. until: 0: no end.",
    sequence_number("announcement_id"),
    number("date"),
    string("author", 255),
    number("until"),
    long_text("text"),
)

#: Tables that nobody but the owner may read: who is in which project, who changed what.
SECRET = ("project_members", "user_settings", "audit_log")

"""The tables of projects and their members."""

from sqlalchemy import Column, Index, String

from oar.lib.accounts.states import MemberRole, ProjectState
from oar.lib.db.schema_tables import integer, long_text, number, one_of, string, table

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

#: Tables that nobody but the owner may read: who is in which project.
SECRET = ("project_members", "user_settings")

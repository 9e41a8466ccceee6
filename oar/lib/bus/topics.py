"""Notifications to listeners of the database: the channels of NOTIFY, and the topics of the first channel.

See docs/design/locks.rst, "Notifications".
"""

from enum import StrEnum


class Channel(StrEnum):
    """A channel of NOTIFY."""

    EVENT = "oar_event"  #: the payload is a topic
    JOB_END = "oar_job_end"  #: the payload is the ids of jobs that have ended, with blanks between them


class Topic(StrEnum):
    """The subject of a change, in notifications to listeners."""

    JOBS = "jobs"  #: jobs: their states, descriptions, resources, reasons, ends
    RESOURCES = "resources"  #: resources: their states and properties, and the history of both
    GANTT = "gantt"  #: the plan: predicted starts and resources
    QUEUES = "queues"  #: queues
    ACCOUNTING = "accounting"  #: consumption
    EVENTS = "events"  #: the log of events
    RESERVATIONS = "reservations"  #: advance reservations: rows, changes, what belongs to them
    TOKENS = "tokens"  #: tokens of the API: new ones, revoked ones

"""What listeners of the database are told: the channels of NOTIFY, and the topics on the first of them.

See docs/design/locks.rst, "Notifications".
"""

from enum import StrEnum


class Channel(StrEnum):
    """A channel of NOTIFY."""

    EVENT = "oar_event"  #: the payload is a topic
    JOB_END = "oar_job_end"  #: the payload is the ids of jobs that have ended, with blanks between them


class Topic(StrEnum):
    """What has changed, as listeners are told."""

    JOBS = "jobs"  #: jobs: their states, descriptions, resources, reasons, ends
    RESOURCES = "resources"  #: resources: their states and properties, and the history of both
    GANTT = "gantt"  #: the plan: predicted starts and resources
    QUEUES = "queues"  #: queues
    ACCOUNTING = "accounting"  #: consumption
    EVENTS = "events"  #: the log of events
    RESERVATIONS = "reservations"  #: advance reservations: rows, changes, what belongs to them
    TOKENS = "tokens"  #: tokens of the API: new ones, revoked ones

"""The exit codes of the server, the Runner and the modules (docs/how-it-works.rst, "The automaton")."""

from enum import IntEnum


class ServerCode(IntEnum):
    """Exit codes of the server and of the Runner."""

    STOPPED = 0
    CONFIGURATION = 1
    DATABASE = 3  #: the database could not be reached
    RUNNING = 4  #: another server is running
    REFUSED = 5  #: of the warden alone: the database rejects its login
    FENCED = 6  #: of a process whose server is no longer active


class NodeChangeStateCode(IntEnum):
    """Exit codes of NodeChangeState."""

    NOTHING = 0
    SCHEDULE = 1  #: a resource has changed
    KILL = 2  #: a job must be killed


class MetaSchedCode(IntEnum):
    """Exit codes of the meta-scheduler."""

    DONE = 0
    AGAIN = 1  #: a reservation that was just accepted starts now
    KILL = 2  #: a job must be killed


class SarkoCode(IntEnum):
    """Exit codes of Sarko."""

    NOTHING = 0
    KILL = 1  #: Leon has work


class LeonCode(IntEnum):
    """Exit codes of Leon."""

    NOTHING = 0
    SCHEDULE = 1  #: a job has left the queue


class GretaCode(IntEnum):
    """Exit codes of Greta."""

    DONE = 0


class FinaudCode(IntEnum):
    """Exit codes of Finaud."""

    NOTHING = 0
    CHANGE = 1  #: a node changes its state

"""Codes for the causes of job ends, and exit codes of oarexec."""

from enum import IntEnum, StrEnum


class ExecCode(IntEnum):
    """Exit codes of oarexec (docs/how-it-works.rst, "How jobs end")."""

    OK = 0  #: the command has ended
    PROLOGUE = 1  #: prologue failed or timed out
    EPILOGUE = 2  #: epilogue failed or timed out
    KILLED = 3  #: killed on request
    KILLED_EPILOGUE = 4  #: killed on request, and the epilogue failed
    NODE_FILE = 5  #: the node file cannot be written
    PID_FILE = 6  #: the pid file or the group of the job cannot be used
    USER_SHELL = 7  #: the user is unknown on the node, or root or oar
    RUNTIME_DIRECTORY = 8  #: the runtime directory cannot be used
    DIRECTORY = 10  #: the launching directory cannot be entered
    DIRECTORY_EPILOGUE = 12  #: that, and the epilogue failed
    OUTPUT = 20  #: stdout or stderr file cannot be opened
    OUTPUT_EPILOGUE = 22  #: that, and the epilogue failed
    TRANSFER = 30  #: the node could not start a process for it
    DATA = 31  #: the data was not understood
    NO_INTERPRETER = 32  #: no usable Python on the node
    SESSION_EPILOGUE = 33  #: interactive job over, epilogue failed
    SESSION = 34  #: interactive job over
    STALE = 36  #: a newer attempt forbids this one; nothing was done
    CHECKPOINTED = 40  #: ended, and had been asked for a checkpoint
    CHECKPOINTED_EPILOGUE = 41  #: that, and the epilogue failed
    SIGNALLED = 42  #: ended, and had been sent a signal
    SHUTDOWN = 43  #: ended by the shutdown of its node
    STAGING = 45  #: made by the server: its agent could not prepare its files
    NOT_CONFIRMED = 50  #: made by the server: the launch was not confirmed
    DIED = 60  #: made by the server: oarexec died without a result


class EndCode(StrEnum):
    """Why a job ended, ``job_ends.code``."""

    SUCCESS = "SUCCESS"  #: its command ended with exit status 0
    EXIT_STATUS = "EXIT_STATUS"  #: its command ended with another exit status
    NOT_EXECUTABLE = "NOT_EXECUTABLE"  #: exit status 126: its command is not executable
    NOT_FOUND = "NOT_FOUND"  #: exit status 127: its command was not found
    SIGNAL = "SIGNAL"  #: its command was ended by a signal that OAR did not send
    SIGNAL_SENT = "SIGNAL_SENT"  #: its command was ended by a signal that a user had OAR send
    CHECKPOINT_SIGNAL = "CHECKPOINT_SIGNAL"  #: its command was ended by the signal that asks for a checkpoint
    CHECKPOINT = "CHECKPOINT"  #: it ended well after it was asked to write a checkpoint
    SESSION_OVER = "SESSION_OVER"  #: the session of an interactive job is over
    SESSION_LOST = "SESSION_LOST"  #: the session of an interactive job was lost, or no user connected to it
    OUT_OF_MEMORY = "OUT_OF_MEMORY"  #: the kernel killed some of its processes because there was not enough memory
    PROCESS_LIMIT = "PROCESS_LIMIT"  #: it could not start more processes
    DISK_FULL = "DISK_FULL"  #: it failed, and the disk of its output is full
    WALLTIME = "WALLTIME"  #: it reached its walltime
    DELETED = "DELETED"  #: its owner deleted it
    ADMINISTRATOR = "ADMINISTRATOR"  #: an administrator deleted it
    EVICTED = "EVICTED"  #: it was besteffort, and another job needed its resources
    CONTAINER = "CONTAINER"  #: its container job ended
    RESERVATION = "RESERVATION"  #: the advance reservation that it was in ended, or was deleted
    NODE_TAKEN = "NODE_TAKEN"  #: a node of it was taken out of service
    SUSPENSION = "SUSPENSION"  #: it could not be suspended or resumed
    NOT_HEARD = "NOT_HEARD"  #: the oarsub that waited for it did not answer
    STOPPED = "STOPPED"  #: it was killed; the cause is unknown
    FORCED = "FORCED"  #: an administrator ended it without waiting for the clean-up of its nodes
    NODE_LOST = "NODE_LOST"  #: a node of it cannot be reached any more
    NODE_REBOOTED = "NODE_REBOOTED"  #: its node was rebooted while it ran
    NODE_SHUTDOWN = "NODE_SHUTDOWN"  #: its node was shut down, or rebooted in order, while it ran
    OAREXEC_LOST = "OAREXEC_LOST"  #: the program that ran it (oarexec) was killed on its node
    RESTORED = "RESTORED"  #: it ended while nobody recorded it: the database was restored from a dump
    AGENT_LOST = "AGENT_LOST"  #: its desktop computer, or the agent there, ended while it ran
    STAGING = "STAGING"  #: a desktop computer could not prepare what its command needs
    NODE_SETUP = "NODE_SETUP"  #: a node of it could not be prepared
    NODE_DESCRIPTION = "NODE_DESCRIPTION"  #: a property of its resources names what a node does not have
    PROLOGUE = "PROLOGUE"  #: the prologue of the node failed
    EPILOGUE = "EPILOGUE"  #: it ended well, but the epilogue of the node failed
    SERVER_PROLOGUE = "SERVER_PROLOGUE"  #: the prologue of the server failed
    SERVER_EPILOGUE = "SERVER_EPILOGUE"  #: it ended well, but the epilogue of the server failed
    HOME_MISSING = "HOME_MISSING"  #: the home directory of its user is not on the node
    DIRECTORY_MISSING = "DIRECTORY_MISSING"  #: its working directory is not on the node
    DIRECTORY_DENIED = "DIRECTORY_DENIED"  #: its user may not enter its working directory
    DIRECTORY_FAILED = "DIRECTORY_FAILED"  #: its working directory cannot be entered for another reason
    OUTPUT_MISSING = "OUTPUT_MISSING"  #: the directory of an output file does not exist
    OUTPUT_DENIED = "OUTPUT_DENIED"  #: its user may not write an output file
    OUTPUT_LINK = "OUTPUT_LINK"  #: an output file is a symbolic link, and the file behind it cannot be written
    OUTPUT_FULL = "OUTPUT_FULL"  #: the disk of an output file is full
    OUTPUT_PIPE = "OUTPUT_PIPE"  #: an output file is a pipe without a reader
    OUTPUT_FAILED = "OUTPUT_FAILED"  #: an output file cannot be opened for another reason
    SHELL_MISSING = "SHELL_MISSING"  #: the login shell of its user is not on the node
    SHELL_FAILED = "SHELL_FAILED"  #: the login shell of its user cannot be executed
    ACCOUNT_UNKNOWN = "ACCOUNT_UNKNOWN"  #: its user is not known on the node
    LAUNCH_UNKNOWN = "LAUNCH_UNKNOWN"  #: it is unknown whether its command was started
    NO_RESOURCES = "NO_RESOURCES"  #: it had no resources when it was to start
    REFUSED = "REFUSED"  #: the scheduler refused it
    EXPIRED = "EXPIRED"  #: it could not start in the time that was set for it
    UNKNOWN = "UNKNOWN"  #: the cause is unknown

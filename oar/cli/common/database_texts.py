"""Messages about a database that cannot be used: what failed, where, why, and what to do."""

from oar.lib.base.errors import (
    DatabaseFull,
    DatabaseReadOnly,
    DatabaseRefused,
    DatabaseUnavailable,
    DatabaseWithoutRoom,
    UserConnectionsUsed,
)
from oar.lib.db.connections import STARTING, DatabaseSettings, explain_failure

#: What an administrator does about a login that is refused; ``{prefix}`` begins the keys of a database.
_CORRECT_LOGIN = (
    "correct {prefix}BASE_NAME, {prefix}BASE_LOGIN and {prefix}BASE_PASSWD in oar.conf, or pg_hba.conf of PostgreSQL"
)
#: What an administrator does about a database that cannot be changed.
_FREE_SPACE = "free disk space there"
_MAKE_WRITABLE = "check whether DB_HOSTNAME names a standby server"


def for_users(error: DatabaseUnavailable, settings: DatabaseSettings | None) -> str:
    """Return the message for a user, whom an administrator has to help if waiting does not."""
    place = f": {settings.place}" if settings else ""
    match error:
        case DatabaseRefused():
            way = f"An administrator has to {_CORRECT_LOGIN.format(prefix='DB_')}."
            return f"cannot use the OAR database{place}: {explain_failure(str(error))}. {way}"
        case DatabaseWithoutRoom():
            return f"cannot use the OAR database{place}: its disk is full. An administrator has to {_FREE_SPACE}."
        case DatabaseReadOnly():
            return f"cannot change the OAR database{place}: it is read-only. An administrator has to {_MAKE_WRITABLE}."
    waited = f", tried for {settings.patience:g} s" if settings and settings.patience else ""
    reason = f"{explain_failure(str(error))}{waited}"
    return f"cannot reach the OAR database{place}: {reason}. Try again later, or inform an administrator."


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def for_administrators(error: DatabaseUnavailable, settings: DatabaseSettings, prefix: str = "DB_") -> str:
    """Return for an administrator which database cannot be used, why, and what to do.

    ``prefix``: of its keys in oar.conf.
    """
    reason = explain_failure(str(error), quotes=True)
    match error:
        case DatabaseRefused():
            is_absent = f'database "{settings.name}" does not exist' in str(error)
            option = "" if prefix == "DB_" else f" --db-name {settings.name}"
            way = (
                f"Create it: oar-database --create{option}"
                if is_absent
                else _sentence(_CORRECT_LOGIN.format(prefix=prefix))
            )
        case DatabaseWithoutRoom():
            reason, way = "its disk is full", _sentence(_FREE_SPACE)
        case DatabaseReadOnly():
            reason, way = "it is read-only", _sentence(_MAKE_WRITABLE)
        case UserConnectionsUsed():
            way = "Wait until another command has ended."
        case DatabaseFull():
            reason = "all connections of PostgreSQL are in use"
            way = "Close idle sessions (pg_stat_activity), or raise max_connections."
        case _ if reason == STARTING:
            way = "Wait, then run the command again."
        case _:
            way = f"Start PostgreSQL there, or correct {prefix}HOSTNAME and {prefix}PORT in oar.conf."
    return f"{settings.place}: {reason}. {way}"

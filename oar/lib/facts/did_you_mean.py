"""``did_you_mean`` under its name of release 3.2: standard rule 16 imports it by programs of both releases.

Rules are stored in the database, which releases share during an upgrade.
"""

from oar.lib.base.texts import did_you_mean

__all__ = ["did_you_mean"]

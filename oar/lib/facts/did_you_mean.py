"""``did_you_mean`` at its place in release 3.2: standard rule 16 of that release, stored in databases, imports it."""

from oar.lib.base.did_you_mean import did_you_mean

__all__ = ["did_you_mean"]

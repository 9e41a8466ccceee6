"""Debian machines with a real systemd, for tests of installation, units, reboots and upgrades.

``roots`` creates the root file systems, ``keeper`` boots machines from them in its own namespaces, ``site`` is the
interface for tests.
"""

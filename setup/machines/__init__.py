"""Debian machines with a real systemd, for tests of what only these show: installation, units, reboots, upgrades.

``roots`` makes the trees of files, ``keeper`` boots machines from them in namespaces of its own, ``site`` is the site
that a test has in its hands.
"""

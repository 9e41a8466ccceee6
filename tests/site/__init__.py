"""Whole machines with a real systemd: a site is installed by the installation chapter, and lives."""

"""Version of the programs and of the database schema (they move together: database.md 1.1)."""

VERSION = "3.1.0"
CODENAME = "Aurochs"

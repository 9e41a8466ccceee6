"""Version of the programs and of the database schema, which move together."""

VERSION = "3.3.0"
CODENAME = "Aurochs"

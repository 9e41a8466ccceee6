"""The tables as SQLAlchemy describes them, their version and their sequences."""

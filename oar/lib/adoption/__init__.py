"""Adoption of the database of an older OAR (``oar-database --adopt``)."""

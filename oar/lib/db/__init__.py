"""Every SQL statement of OAR.  A table is an attribute of a transaction: ``tx.jobs.find(7)``, ``tx.queues.all()``.

A file holds the statements about one table, or those that answer one question.  It has one class, a ``Table``
(``statements.py``), named like the file; ``Transaction`` (``transaction.py``) has an attribute named like the file, and
loads the file when the attribute is first used.  ``Database`` (``database.py``) begins and ends transactions.

To add a statement: a constant with the SQL text and its bound parameters, and a method of the class that runs it and
returns records.  A constant that is a whole statement is found by ``tests/db/statements.py``: PostgreSQL prepares it,
and shows that it does not read through the past.  To add a table: a file, its class, a line in ``Transaction``.
A table does not use another one: who needs both calls both.

Programs that work on whole connections, not in transactions of ours, are no tables: ``migrations.py``, the repairs of
``index_repairs.py``, the conditions of users in ``user_sql.py``, and SQLAlchemy for old admission rules in
``oar3_names.py``.  ``schema.py`` describes the tables.
"""

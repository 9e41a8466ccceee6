"""Every SQL statement of OAR.  A table is an attribute of a transaction: ``tx.jobs.find(7)``, ``tx.queues.all()``.

Packages hold what is of one subject: ``jobs``, ``resources``, ``reservations``, ...; ``sql`` is what all of them stand
on.  A file holds the statements about one table, or those that answer one question.  It has one class, a ``Table``
(``sql/statements.py``), named like the file; ``Transaction`` (``transaction.py``) has an attribute named like the file,
and loads the file when the attribute is first used.  ``Database`` (``database.py``) begins and ends transactions.

To add a statement: a constant with the SQL text and its bound parameters, and a method of the class that runs it and
returns records.  A constant that is a whole statement is found by ``tests/db/statements.py``: PostgreSQL prepares it,
and shows that it does not read through the past.  To add a table: a file, its class, a line in ``Transaction``.
A table does not use another one: who needs both calls both.

Programs that work on whole connections, not in transactions of ours, are no tables: what ``oar-database`` does
(``installation``), the conditions of users and SQLAlchemy for old admission rules (``foreign_code``),
listeners (``listening``).  ``schema/schema.py`` describes the tables.
"""

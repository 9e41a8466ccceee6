"""The access to the database: connections, transactions, locks, schema, migrations.

A table is an attribute of a transaction: ``tx.jobs.find(7)``, ``tx.queues.all()``. The statements of a subject are in
its ``sql_*.py`` files, for example ``oar/lib/jobs/sql_jobs.py``. Such a file contains the statements about one table,
or those for one query, in a subclass of ``Table`` (``statements.py``). ``Transaction`` (``transaction.py``) has an
attribute for each class, and loads its file at first use. ``Database`` (``database.py``) begins and ends transactions.

To add a statement, add a constant with the SQL text and its bound parameters, and a method that runs it and returns
records. ``tests/db/statements.py`` finds each constant that is a whole statement: PostgreSQL prepares the statement,
and a test checks that it does not scan the history. To add a table, add a file, its class, and a line in
``Transaction``. A table does not use another table: a caller that needs both calls both.

Programs that work on whole connections are not tables: ``oar-database`` (``migrations.py``), the conditions of users
(``user_sql.py``) and listeners (``channel_listener.py``). ``schema.py`` describes the tables.
"""

"""The library: jobs, nodes and reservations, the access to the database, and the access to other systems.

Each package is one subject; CONTRIBUTING.md lists them. Imports go from an upper layer to a lower one:

    runtime, control_delivery                   the start of every process; delivery of effects
    submission, reservations, jobs, nodes,      subjects: records, states, rules, services,
    history, planning, access, desktop,         and SQL statements (``sql_*.py``)
    adoption, monitoring
    db                                          connections, transactions, locks, schema, migrations
    conditions, config, notifications,          modules without access to the database
    remote, bus, user_files
    base                                        plain functions and values

``runtime`` combines configuration and database for every process.
"""

"""The scheduler: ``rounds`` read the database, call the ``planner``, which decides, and write what it decided.

Begin with the drawings and the words in ``oar/kao/rounds/__init__.py`` and ``oar/kao/planner/__init__.py``.
"""

"""The scheduler: ``rounds`` reads the database, calls the ``planner`` and writes its decisions.

Begin with the diagrams and the glossary in ``oar/kao/rounds/__init__.py`` and ``oar/kao/planner/__init__.py``.
"""

"""Conditions of users (``-p``, ``{...}``, ``--sql``): a language similar to SQL that OAR parses completely.

``tokens`` splits the text and ``parser`` builds a ``tree`` from it, within the limits of ``bounds``.  ``sql`` writes
the tree as a statement with bound parameters, and ``in_memory`` evaluates it on columns.  The text of a user never
reaches a database server.
"""

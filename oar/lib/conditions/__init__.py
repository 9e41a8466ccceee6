"""Conditions of users (``-p``, ``{...}``, ``--sql``): a language that looks like SQL and is read completely.

``tokens`` cuts the text, ``parser`` makes a ``tree`` of it, within the limits of ``bounds``; ``sql`` writes the tree
as a statement with bound parameters, ``in_memory`` evaluates it on columns. The text of a user never reaches a
database server.
"""

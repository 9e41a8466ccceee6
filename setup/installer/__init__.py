"""Puts OAR on a machine: the Python package in an environment of its own, programs, wrappers, configuration, units.

``main`` is the program, ``flavours`` what each kind of machine gets, ``tables`` the names of all programs.
"""

"""Installs OAR on a machine: the Python package in a private environment, programs, wrappers, configuration, units.

``main`` is the program, ``flavours`` the parts of each kind of machine, ``tables`` the names of all programs.
"""

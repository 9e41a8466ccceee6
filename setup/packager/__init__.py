"""Builds the Debian packages from the sources, reproducibly.

``main`` is the program, ``contents`` the files of each package, ``scripts`` the maintainer scripts, ``libraries`` the
bundled wheels, ``archive`` the package format.
"""

"""Builds the Debian packages from the sources; the same sources give the same bytes.

``main`` is the program, ``contents`` what each package holds, ``scripts`` what it does when it comes and goes,
``libraries`` the wheels that are inside, ``archive`` the format.
"""

"""Desktop computing: computers that ask the server for their work.  See docs/design/desktop.rst."""

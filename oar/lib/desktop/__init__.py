"""Desktop computing: computers that fetch their jobs from the server.  See docs/design/desktop.rst."""

"""The placement of one job: search, reuse of the last round, reasons, start, extensions of the site."""

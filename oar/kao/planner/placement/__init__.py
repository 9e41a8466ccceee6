"""The placement of one job: bookings of the jobs before it, search, reuse of the last round, reasons."""

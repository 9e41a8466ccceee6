"""The placement of one job: bookings of earlier jobs, search, reuse of the last round, reasons."""

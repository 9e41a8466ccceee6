"""What all commands share: options, errors and exit codes, tables, the choice of jobs."""

"""The commands: one file for each, named like the command."""

"""The Gantt diagram: days that are over, what goes on, curves, small parts, a table."""

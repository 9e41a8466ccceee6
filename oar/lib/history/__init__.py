"""What happened: events, the Gantt diagram, usage, exports of ended jobs."""

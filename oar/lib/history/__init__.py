"""Past events, the Gantt diagram, resource usage, and exports of ended jobs."""

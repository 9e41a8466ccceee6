"""Jobs: records, states, statements, control, ends, waiting reasons, views."""

"""Each module reaches one part of the outer world: the bus, nodes, processes, mail, the log."""

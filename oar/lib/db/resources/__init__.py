"""Resources, nodes and queues."""

"""Messages between the processes of the server: their types, the ZeroMQ sockets, the line port and the doorbell."""

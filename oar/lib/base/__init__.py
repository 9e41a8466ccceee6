"""Plain functions and values that are independent of OAR: errors, formats, times, texts, processes, sockets."""

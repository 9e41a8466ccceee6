"""Plain functions and values that know nothing of OAR's subjects: errors, formats, times, texts, processes, sockets."""

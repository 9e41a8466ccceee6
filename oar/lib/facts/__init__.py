"""Plain values and their texts: errors, states, records, requests, messages, formats.  Imports nothing of OAR."""

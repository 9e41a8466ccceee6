"""The REST API: what the commands do, over HTTP.

``application`` puts the routes together; each file of routes names its objects (``jobs``, ``history`` ...).  A handler
is an ordinary function that runs in a thread, asks ``views`` or a service, and returns a finished answer; only streams
are coroutines.  Who is asking is decided in ``callers``, what an error becomes in ``problems``, both once for all.
"""

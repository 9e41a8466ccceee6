"""The REST API: what the commands do, over HTTP.

Each subject has one file, or two or three of one name: its routes, the records that they return, the tasks that they
give to worker processes.  A handler is an ordinary function that runs in a thread: it identifies the caller
(``service.asking``), calls a function of ``oar.lib``, and returns a response.  Only handlers of streams are coroutines.

``server`` is the process and its sockets, ``application`` collects the routes.  A request passes ``middleware`` and
``routing``; ``authentication`` determines the caller, ``concurrency`` limits what each client may use, ``errors`` makes
the response to an error.  ``legacy`` serves clients of OAR 2.5 and OAR 3.
"""

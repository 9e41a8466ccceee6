"""The REST API: what the commands do, over HTTP.

Each subject has one file, or two or three of one name: its routes, the records that they return, the tasks that they
give to worker processes.  A handler is an ordinary function that runs in a thread: it identifies the caller
(``service.asking``), calls a function of ``oar.lib``, and returns a response.  Only handlers of streams are coroutines.

``server`` is the process, ``application`` puts the routes together.  A request passes ``connections``, ``middleware``,
``request_limits`` and ``routing``; ``authentication`` decides who the caller is, ``rate_limits`` and ``concurrency``
how much a client may request, ``errors`` what an error becomes.  ``legacy`` serves clients of OAR 2.5 and OAR 3.
"""

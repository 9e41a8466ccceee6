"""Submission of jobs: from the options of a request to the rows of its jobs.

A request passes through ``options`` (what was given, with ``script_lines``), ``preparation`` (parsed and checked),
``admission`` (admission rules, queue, feasibility, entry into an advance reservation) and ``submit`` (keys, rows, wake
of the server).  ``alteration`` and ``resubmission`` do the same for jobs that exist.
"""

"""The Runner: carries out what is decided about jobs (launches, ends, kills, signals, notices).

``bipbip_commander`` is the process that holds the list of actions.  ``dispatch`` decides which action goes to which
bipbip, and when; ``end_reports`` stores the end reports of nodes; ``user_notices`` and ``array_mails`` tell the owners
of jobs.  ``bipbip`` is the process that carries actions out, each by its module in ``actions``; ``bipbip_process`` is
the Runner's handle of such a process, and ``protocol`` the messages on the pipes between the two.
"""

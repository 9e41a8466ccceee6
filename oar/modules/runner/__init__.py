"""The Runner: carry out the decisions about jobs (launches, ends, kills, signals, notices).

``bipbip_commander`` is the process that maintains the list of actions. ``dispatch`` decides which bipbip carries out
which action, and when. ``end_reports`` stores the end reports of nodes; ``user_notices`` and ``array_mails`` notify the
owners of jobs. ``bipbip`` is the process that carries out actions, each with its module in ``actions``.
``bipbip_process`` is the Runner's handle of such a process. ``protocol`` defines the messages on the pipes between
them.
"""

"""A scheduling round: database -> snapshot -> plan -> database; and rounds on hypothetical situations.

The steps of ``meta_sched.py`` in one round::

    round_lock            no other round is running
      |
      v
    resource_weights      scheduler_priority of resources, if there are besteffort or timesharing jobs
      |
      v
    reading/              one transaction that reads one instant  --------------->  Situation = Snapshot + last plan
      |                     job_cache, filter_pools: unchanged data is not read again
      v
    writing/walltime_updates     grants changes of walltimes; if any was granted, everything is read again
      |
      v
    oar.kao.planner       Snapshot -> Plan, pure                <----------------->  site/: plug-ins, schedulers
      |                     diagram of its stages: oar/kao/planner/__init__.py
      v
    plan_faults           a job with a faulty placement is removed from the plan, and the round is saved
      |
      v
    writing/plan_writer   one transaction: starts, kills, predictions, reasons, messages, states
      |                 interactive_predictions: lines sent to waiting interactive jobs after the commit
      v
    round_results         the exit code for Almighty, and when the next round is due

Glossary:

cold, warm
    A cold meta-scheduler has just started.  A warm one has the data that it read, decided and wrote in the last round.
    Both make the same decisions.
deferral
    A user's condition that takes too much time in the database is put aside for a while.
hypothetical
    A job that is not submitted, or a machine without some nodes: planned like a real one, never written.
plan
    All decisions of a round.
round
    One pass of the meta-scheduler.
situation
    The input of a round: the snapshot, and the last plan as stored in the database.
tail
    The full plan that follows an urgent pass in slices, between the rounds (``plan_tail.py``, ``foreseen.py``).
snapshot
    The complete input of the planner at one instant.  It can be saved to a file and planned again.

The order of the steps, the exit codes and the written data are described in docs/design/planner.rst.
"""

"""A scheduling round: database -> snapshot -> plan -> database; and rounds on hypothetical situations.

What ``meta_sched.py`` does in one round::

    round_lock            no other round goes on
        |
        v
    resource_weights      scheduler_priority of resources, if there are besteffort or timesharing jobs
        |
        v
    reading/              one transaction that sees one instant  ----------------->  Situation = Snapshot + last plan
        |                     job_cache, filter_pools: what has not changed is not read again
        v
    writing/walltime_updates     grants changes of walltimes; if it has granted any, everything is read again
        |
        v
    oar.kao.planner       Snapshot -> Plan, pure                <----------------->  site/: plug-ins, schedulers
        |                     its stages are drawn in oar/kao/planner/__init__.py
        v
    plan_faults           a job whose part of the plan is wrong is left out, and the round is saved
        |
        v
    writing/plan_writer   one transaction: starts, kills, predictions, reasons, messages, states
        |                 interactive_predictions: what waiting interactive jobs are told after the commit
        v
    round_results         the exit code for Almighty, and when the next round is due

The words:

cold, warm
    A meta-scheduler that has just begun; one that has what it read, decided and wrote in the round before.  Both decide
    the same.
deferral
    A condition of a user that needs too much time in the database, and is put aside for a while.
hypothetical
    Of a job that is not submitted, of a machine without some nodes: planned like a real one, never written.
plan
    All decisions of a round.
round
    One pass of the meta-scheduler.
situation
    What a round finds: the snapshot, and what the database holds of the last plan.
tail
    The full plan that follows an urgent pass in slices, between the rounds (``plan_tail.py``, ``foreseen.py``).
snapshot
    Everything that the planner decides on, at one instant.  It can be saved to a file and planned again.

The order of the steps, the exit codes and what is written are in docs/design/planner.rst.
"""

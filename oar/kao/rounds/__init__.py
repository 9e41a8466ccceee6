"""A scheduling pass: database -> snapshot -> plan -> database; and passes on hypothetical situations.

The steps of ``meta_sched.py`` in one pass::

    round_lock                 no other pass is running
    ResourceWeights            scheduler_priority of resources, if there are besteffort or timesharing jobs
    reading/                   one transaction that reads one instant: Situation = Snapshot + last plan; unchanged data
                               is not read again (snapshot_jobs, filter_pools)
    writing/walltime_updates   grants changes of walltimes; if any was granted, everything is read again
    oar.kao.planner            Snapshot -> Plan, pure; site/: plug-ins, schedulers
    plan_faults                a job with a faulty placement is removed from the plan, and the pass is saved
    writing/plan_writer        one transaction: starts, kills, predictions, reasons, messages, states
    round_results              the exit code for Almighty, when the next pass is due, lines for interactive jobs

Terms besides those of docs/glossary.rst:

cold, warm
    A cold meta-scheduler has just started.  A warm one has the data that it read, decided and wrote in the last pass.
    Both make the same decisions.
deferral
    A user's condition that takes too much time in the database is put aside for a while.
hypothetical
    A job that is not submitted, or a machine without some nodes: planned like a real one, never written.
tail
    The full plan that follows an urgent pass in slices, between the passes (``plan_tail.py``).

The order of the steps, the exit codes and the written data are described in docs/design/planner.rst.
"""

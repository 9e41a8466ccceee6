"""``schedule(snapshot) -> plan``: pure, without database, clock or environment.

The stages of a scheduling pass, in the order of ``schedule.py``::

    [1] fixed facts           types of jobs, compiled requests; running jobs, accepted reservations and their containers
                              occupy slots                       placement/round_context, resources/, facts/job_types
    [2] advance reservations  their states and changes; new requests, before any waiting job    advance_reservations/
    [3] each group of queues of one priority, the highest first:
          ordinary jobs in their order                           job_order, fair_share, queue_planner, urgent_pass
            each: may it start at all? -> place -> start         limits/, placement/placer, placement/starts
          reservation jobs that are due, then new ones           reservation_jobs
    [4] besteffort jobs       of all queues, in copies of the spaces, which also contain the running besteffort jobs
    [5] the rest              suspended jobs that resume, nodes to wake and to halt, messages, and a reason for each job
                              without a start                    placement/starts, energy, job_messages
    [6] the check of the plan against the snapshot, independent of all above                    plan_check

How one job gets its placement (``placement/placer.py``)::

    WaitingJob --> kept from the last pass? --yes--> Placement                     placement_reuse
                        | no
                        v
                   earliest start of each alternative in its space                 placement_search
                        |   slots: where do all groups fit?                        resources/slot_search, sections
                        |   quotas: do they allow it there? else continue          limits/quotas
                        v
                   the alternative that ends first --> Placement, or a Reason      placement_reasons

Terms besides those of docs/glossary.rst:

decisions
    The decisions so far in the pass; the plan is built from them at the end.
passed over
    Skipped in an urgent pass: the job does not start now, and no later start is searched for.
proposal
    The placements of an external scheduler of the site; they are used only after a review (``proposal_review.py``).
round memory
    The record of a pass for the next one: with it, unchanged jobs keep their placement without a search.
urgent pass
    A plan that decides everything that is due now, and passes over other jobs (``urgent_pass.py``).
wave
    Equal jobs that are placed with the same start in one step (``placement/placement_task.py``).

The exact meaning of each step is in docs/design/planner.rst.
"""

"""``schedule(snapshot) -> plan``: pure, without database, clock or environment.

The stages of a round, in the order of ``schedule.py``::

    Snapshot ---------------------------------------------------------------------------------------------.
       |                                                                                                  |
       v                                                                                                  |
    [1] fixed facts        types of jobs, compiled requests; running jobs, accepted reservations and      |
       |                   their containers occupy slots           placement/bookings, resources/         |
       v                                                                                                  |
    [2] repair             new resources for accepted reservations that have lost theirs   reservations   |
       |                                                                                                  |
       v                                                                                                  |
    [3] each group of queues of one priority, the highest first:                                          |
       |    ordinary jobs in their order                           job_order, queue_planner               |
       |       each: wait for other jobs? -> place -> start        limits/, placement/placer, starts      |
       |    accepted reservations that are due, then new ones      reservations                           |
       v                                                                                                  |
    [4] besteffort jobs    of all queues, in copies of the spaces, which also contain the running         |
       |                   besteffort jobs                         besteffort, queue_planner              |
       v                                                                                                  |
    [5] the rest           suspended jobs that resume, nodes to wake and to halt, messages, and a reason  |
       |                   for each job without a start            suspension, energy, job_messages       |
       v                                                                                                  |
    Plan ---> [6] check    against the snapshot, independent of all above          plan_check  <----------'

How one job gets its placement (``placement/placer.py``)::

    WaitingJob --> kept from the last round? --yes--> Placement                    placement_reuse
                        | no
                        v
                   earliest start of each alternative in its space                 placement_search
                        |   slots: where do all groups fit?                        resources/slot_search
                        |   quotas: do they allow it there? else continue          limits/quota_usage
                        v
                   the alternative that ends first --> Placement, or a Reason      placement_reasons

Glossary:

alternative
    One ``-l`` of a job: a request and a walltime.  The planner chooses one of them.
block
    The resources that have one value of a property: a node, a core.
decisions
    The decisions so far in the round (``placement/decisions.py``); the plan is built from them at the end.
group
    A part of a request: a filter and levels (``switch=1/node=2``); groups are joined by ``+``.
passed over
    Skipped in an urgent pass: the job does not start now, and no later start is searched for.
placement
    Job, alternative, start and resources.
pool
    The resources that satisfy the filters of a group.
proposal
    The placements of an external scheduler of the site; they are used only after a review (``proposal_review.py``).
reason
    Why a job does not start now: a code, a sentence and data.
round memory
    The record of a round for the next one: with it, unchanged jobs keep their placement without a search.
slot
    An interval in which the set of free resources does not change, and that set.
space
    Jobs in the same space exclude each other: there is the common space, and one for each container.
start
    A job that begins now.  A later placement is a prediction for an ordinary job, and guaranteed for a reservation.
urgent pass
    A plan that decides everything that is due now, and passes over other jobs (``passed_over.py``).
wave
    Equal jobs that are placed with the same start in one step (``placement/waves.py``).
window
    The earliest and the latest date at which a job may start.

The exact meaning of each step is in docs/design/planner.rst.
"""

"""``schedule(snapshot) -> plan``: pure, without database, clock, environment.

The stages of a round, as ``schedule.py`` makes them::

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
    [4] besteffort jobs    of all queues, in copies of the spaces, which hold the besteffort jobs that    |
       |                   run too                                 besteffort, queue_planner              |
       v                                                                                                  |
    [5] the rest           suspended jobs that go on, nodes to wake and to halt, messages, and a reason   |
       |                   for each job that stays behind          suspension, energy, job_messages       |
       v                                                                                                  |
    Plan ---> [6] check    against the snapshot, written apart from all above      plan_check  <----------'

How one job gets its placement (``placement/placer.py``)::

    WaitingJob --> kept from the last round? --yes--> Placement                    placement_reuse
                        | no
                        v
                   earliest start of each alternative in its space                 placement_search
                        |   slots: where do all groups fit?                        resources/slot_search
                        |   quotas: do they allow it there? else search on         limits/quota_usage
                        v
                   the alternative that ends first --> Placement, or a Reason      placement_reasons

The words:

alternative
    One ``-l`` of a job: a request and a walltime.  The planner chooses one.
block
    The resources that have one value of a property: a node, a core.
decisions
    What has been decided so far in the round (``placement/decisions.py``); at the end they become the plan.
group
    A part of a request: a filter and levels (``switch=1/node=2``); groups are joined by ``+``.
passed over
    Of a job in an urgent pass: it does not start now, and where it starts later is not searched for.
placement
    Job, alternative, start and resources.
pool
    The resources that satisfy the filters of a group.
proposal
    What an external scheduler of the site wants; it becomes placements only after a review (``proposal_review.py``).
reason
    Why a job does not start now: a code, a sentence and numbers.
round memory
    What a round leaves to the next one, so that unchanged jobs keep their placement without a search.
slot
    A time from one change of what is free to the next, and the resources that are free all through it.
space
    A world in which jobs exclude each other: the common one, and one for each container.
start
    A job that begins now.  A placement with a later date is a prediction for ordinary jobs, a promise for reservations.
urgent pass
    A plan that decides on all that is done now, and passes over other jobs (``passed_over.py``).
wave
    Equal jobs that are placed at one start in one step (``placement/waves.py``).
window
    The dates between which a job may start.

The exact meaning of each step is in docs/design/planner.rst.
"""

"""What is true about jobs and resources, and the ways to the database and to the outer world.

Each package is a floor; imports go from an upper floor to a lower one only:

    submission              a request becomes a job
    jobs      resources     acts on jobs, on nodes and on their resources
    views                   what users see
    db                      every SQL statement
    conditions              the language of -p and --sql
    rules     io            pure decisions and their words      sockets, processes, nodes, mail, log
    facts     config        plain values                        oar.conf

``runtime`` joins configuration, database and ``io`` to what every process starts with.
"""

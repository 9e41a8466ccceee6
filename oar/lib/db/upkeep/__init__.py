"""What keeps a database well: invariants, repairs, retention, figures."""

"""A scheduling round: database -> snapshot -> plan -> database; and rounds on supposed snapshots."""

"""Limits of placements besides resources: quotas, limits of arrays, dependencies, depth of backfilling."""

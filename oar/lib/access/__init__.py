"""Users, groups, tokens and their permissions."""

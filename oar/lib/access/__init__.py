"""Users, groups, tokens and what they may do."""

"""How programs prove who they are."""

"""Import paths of release 3.2 that stored admission rules may use."""

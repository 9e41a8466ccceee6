"""Which resources are free when: slots, spaces, the resources that a class of jobs may use, requests."""

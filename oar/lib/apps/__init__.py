"""Programs with web pages that run in jobs (``oarsub --app``): their definitions, and the sessions of running ones."""

"""A request becomes a job: checks, admission rules, insertion; also alteration and resubmission."""

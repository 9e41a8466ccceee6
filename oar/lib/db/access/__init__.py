"""Who may do what: tokens, challenges of jobs, usersets."""

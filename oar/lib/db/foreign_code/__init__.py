"""What others have written and we run for them: conditions of users, admission rules for OAR 3."""

"""What blocks or costs: tasks in processes of their own, programs that run as a user."""

"""Jobs: their rows, what they wait for, how they run and end, and how they are listed."""

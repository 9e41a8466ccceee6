"""What stands round handlers: which one answers, what errors become, the connections under them."""

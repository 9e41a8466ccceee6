"""What the site adds to rounds: schedulers, plug-ins, token scripts."""

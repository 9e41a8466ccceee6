"""Extensions of rounds by the site: schedulers, plug-ins, token scripts."""

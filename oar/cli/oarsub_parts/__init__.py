"""The parts of oarsub: options, waiting, sessions, estimates."""

"""Nodes and their resources: states, properties, energy, maintenance."""

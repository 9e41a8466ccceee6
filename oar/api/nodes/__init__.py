"""Nodes and their resources over HTTP: lists, the grid of states, history, changes."""

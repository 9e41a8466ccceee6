"""The pages, looked at with a real browser."""

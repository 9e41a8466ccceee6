"""The wait for changes, and the feed of all of them in order: on connections of their own."""

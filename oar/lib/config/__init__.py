"""oar.conf: the declaration of each key, the kinds of values, the file itself."""

"""Who is asking, and how often he may: passwords, signed tokens, files of ``htpasswd``."""

"""The pages: static files, words of each language, and the first view of each page as a plain document."""

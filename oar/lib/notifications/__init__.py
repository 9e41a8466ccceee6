"""Mails and notices to users and administrators."""

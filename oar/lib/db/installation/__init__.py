"""What ``oar-database`` does to whole databases: migrations, archive, adoption of older ones."""

"""What has happened, the newest first, and what happens, as a stream."""

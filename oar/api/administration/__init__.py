"""What administrators ask and change over HTTP, and who used what."""

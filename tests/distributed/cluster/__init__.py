"""Programs that kill processes of a local Ray cluster."""

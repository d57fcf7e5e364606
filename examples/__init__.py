"""Things that run."""

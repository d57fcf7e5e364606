"""One connection: both directions, their flow and their end."""

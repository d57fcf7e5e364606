"""What puts the project onto somebody's machines, and what generates parts of it."""

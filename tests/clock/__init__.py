"""A clock of the machine that starts at another time of the day, and goes faster."""

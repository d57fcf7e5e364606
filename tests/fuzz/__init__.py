"""Fuzzing: mutated inputs by the million against everything that reads what somebody else sent."""

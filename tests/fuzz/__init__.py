"""Fuzzing: mutated inputs for all code that reads bytes from outside."""

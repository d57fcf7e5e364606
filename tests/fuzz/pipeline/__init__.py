"""Fuzzing of the whole pipeline: hostile and innocent pushes, from the core to the roll-up's tables."""

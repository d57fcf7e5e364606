"""Fuzzes the whole pipeline with hostile and innocent pushes."""

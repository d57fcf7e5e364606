"""Code that several plugins share: cumulative sums, HTTP, destination settings.

It imports no plugin, and no plugin imports another one. import-linter enforces both.
"""

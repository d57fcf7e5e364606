"""Code that several plugins share: OTLP sums, HTTP and the checks of a destination's settings.

It imports no plugin, and no plugin imports another one. import-linter enforces both.
"""

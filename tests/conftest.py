"""Fixtures of all tests, which start nothing until a test asks for them, and the marker ``full``."""

pytest_plugins = ["tests.selection", "tests.testbed.fixtures"]

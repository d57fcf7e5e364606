"""Loads the fixtures of all tests, which start nothing until a test asks, and the marker."""

pytest_plugins = ["tests.selection", "tests.testbed.fixtures"]

"""Loads the marker ``full`` and the fixtures of all tests, which start nothing until used."""

pytest_plugins = ["tests.selection", "tests.testbed.fixtures"]

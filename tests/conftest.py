"""Loads the markers, the measures and the fixtures of all tests, which start nothing until used."""

pytest_plugins = ["tests.exploration", "tests.selection", "tests.timing", "tests.testbed.fixtures"]

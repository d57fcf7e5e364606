"""Fixtures of every test: the testbed's, which start nothing until a test asks for them."""

pytest_plugins = ["tests.testbed.fixtures"]

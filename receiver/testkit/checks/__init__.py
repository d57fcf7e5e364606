"""The checks of the test kit: one table, and the functions that judge.

Each function takes what was recorded of one client, and returns a verdict. It is pure.
"""

"""Real brokers, clients and collectors on loopback, for tests, benchmarks and the demo.

The testbed fetches, builds, starts and stops the real parts and nothing else. It asserts nothing,
and it does not import the receiver, so that what it says about the receiver is an outsider's view.
See README.md here.
"""

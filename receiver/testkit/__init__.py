"""The test kit for authors of Kafka clients.

Its brokers record and judge a client's telemetry.

``recording`` has what is recorded, ``kit`` the brokers without sockets, ``endpoint`` the sockets,
``progress`` and ``script`` what is answered when, ``data_path`` the answers that keep a producer or
consumer alive, ``checks`` the table of checks, ``judge`` and ``report`` the verdicts.
"""

"""A librdkafka producer for the test kit: sends records for a while, then closes.

BOOTSTRAP_SERVERS has the kit's addresses, and SECONDS how long it runs: the default script takes
about a minute.
"""

from __future__ import annotations

import os
import time

from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"], "client.id": "example"})
end = time.monotonic() + float(os.environ.get("SECONDS", "75"))
while time.monotonic() < end:
    producer.produce("orders", b"value")
    producer.poll(0.1)
producer.flush()
producer.close()

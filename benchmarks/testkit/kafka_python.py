"""A kafka-python producer with the arguments of the testbed's clients."""

from __future__ import annotations

import argparse
import signal
import time
from types import FrameType

from kafka import KafkaProducer


def main() -> None:
    """Send records until SIGTERM."""
    parser = argparse.ArgumentParser()
    for name in ("--mode", "--bootstrap", "--topic", "--client-id", "--group", "--rate", "--count"):
        parser.add_argument(name)
    parser.add_argument("--properties")
    given = parser.parse_args()
    running = True

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal running
        running = False

    signal.signal(signal.SIGTERM, stop)
    producer = KafkaProducer(bootstrap_servers=given.bootstrap.split(","), client_id=given.client_id)
    while running:
        producer.send(given.topic, b"value")
        time.sleep(1 / float(given.rate))
    producer.close()


if __name__ == "__main__":
    main()

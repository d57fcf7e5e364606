"""Runs a librdkafka client (confluent-kafka); the package documents its arguments."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from confluent_kafka import Consumer, KafkaError, Message, Producer, libversion

_STATUS_EVERY_S = 1.0
_CLOSE_WITHIN_S = 10.0
_VALUE = bytes(100)


def _print(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


class _Run:
    """One run of the program, until SIGTERM."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.properties: dict[str, object] = {
            "bootstrap.servers": arguments.bootstrap,
            "client.id": arguments.client_id,
            "error_cb": self.error,
        }
        self.properties.update(line.split("=", 1) for line in arguments.properties.read_text().splitlines())
        self.records = 0
        self.errors = 0
        self.running = True
        self._next_status = 0.0

    def terminate(self, _number: int, _frame: FrameType | None) -> None:
        self.running = False

    def error(self, error: KafkaError) -> None:
        self.errors += 1
        _print("error", message=str(error))

    def report(self) -> None:
        now = time.monotonic()
        if now >= self._next_status:
            self._next_status = now + _STATUS_EVERY_S
            _print("counts", records=self.records, errors=self.errors)

    def delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.records += 1
        else:
            self.error(error)

    def produce(self) -> None:
        producer = Producer(self.properties)
        due = time.monotonic()
        left = self.arguments.count
        while self.running:
            producer.poll(max(0.0, min(due - time.monotonic(), 0.1)) if left else 0.1)
            self.report()
            if left and time.monotonic() >= due:
                due += 1 / self.arguments.rate
                left -= 1
                producer.produce(self.arguments.topic, _VALUE, on_delivery=self.delivered)
        producer.flush(_CLOSE_WITHIN_S)
        producer.close()

    def consume(self) -> None:
        consumer = Consumer(
            {"group.id": self.arguments.group, "auto.offset.reset": "earliest"} | self.properties
        )
        consumer.subscribe([self.arguments.topic])
        while self.running:
            message = consumer.poll(0.1)
            self.report()
            if message is not None:
                self.delivered(message.error(), message)
        consumer.close()


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=("producer", "consumer"), required=True)
    for name in ("--bootstrap", "--topic", "--client-id", "--group"):
        parser.add_argument(name, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--count", type=int, required=True)  # below 0: without end
    parser.add_argument("--properties", type=Path, required=True)
    run = _Run(parser.parse_args())
    signal.signal(signal.SIGTERM, run.terminate)
    _print("started", mode=run.arguments.mode, version=libversion()[0])
    if run.arguments.mode == "producer":
        run.produce()
    else:
        run.consume()
    _print("stopped", records=run.records, errors=run.errors)


if __name__ == "__main__":
    main()

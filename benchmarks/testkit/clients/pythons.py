"""A producer of kafka-python or aiokafka with the arguments of the testbed's clients."""

from __future__ import annotations

import argparse
import asyncio
import signal


async def _kafka_python(given: argparse.Namespace, stopped: asyncio.Event) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=given.bootstrap.split(","), client_id=given.client_id)
    while not stopped.is_set():
        producer.send(given.topic, b"value")
        await asyncio.sleep(1 / given.rate)
    producer.close()


async def _aiokafka(given: argparse.Namespace, stopped: asyncio.Event) -> None:
    from aiokafka import AIOKafkaProducer  # type: ignore[import-not-found] # fetched for a run

    producer = AIOKafkaProducer(bootstrap_servers=given.bootstrap, client_id=given.client_id)
    await producer.start()
    while not stopped.is_set():
        await producer.send(given.topic, b"value")
        await asyncio.sleep(1 / given.rate)
    await producer.stop()


_LIBRARIES = {"kafka-python": _kafka_python, "aiokafka": _aiokafka}


async def main() -> None:
    """Send records until SIGTERM."""
    parser = argparse.ArgumentParser()
    for name in ("--mode", "--bootstrap", "--topic", "--client-id", "--group", "--count", "--properties"):
        parser.add_argument(name)
    parser.add_argument("--library", choices=tuple(_LIBRARIES), required=True)
    parser.add_argument("--rate", type=float)
    given = parser.parse_args()
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await _LIBRARIES[given.library](given, stopped)


if __name__ == "__main__":
    asyncio.run(main())

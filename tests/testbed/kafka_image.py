"""Builds the Kafka image: a formatted data folder and class data archives.

This recipe has a file of its own, because a change of the file rebuilds the image.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from tests.testbed import jvm
from tests.testbed.broker import CLUSTER_ID, SASL_USERS, KafkaBroker, Listener
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.clients import JavaClient, Mode
from tests.testbed.commands import BuildError, run
from tests.testbed.parts import HERE
from tests.testbed.ports import LOOPBACK
from tests.testbed.process import ScratchFolder
from tests.testbed.security import Login, Security


def build(folder: Path) -> None:
    """Format a data folder, and archive the classes of a broker, producer and consumer.

    Raises:
        BuildError: A step failed.
        StartError: The broker does not start.
    """
    settings = folder / "format.properties"
    settings.write_text((HERE / "kafka" / "storage.properties").read_text() + f"log.dirs={folder / 'data'}\n")
    users = [
        f"--add-scram={mechanism}=[name={name},password={password}]"
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for name, password in SASL_USERS.items()
    ]
    run(jvm.command("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", settings, *users))
    # A dynamic archive holds what its run loaded: so let each program do what it is for, once.
    archiving = {
        name: (*jvm.QUICK_START, f"-XX:ArchiveClassesAtExit={folder / name}")
        for name in (jvm.BROKER_ARCHIVE, jvm.PRODUCER_ARCHIVE, jvm.CONSUMER_ARCHIVE)
    }
    login = Login(mechanism="SCRAM-SHA-256", user="alice", password=SASL_USERS["alice"])
    with contextlib.ExitStack() as running:
        certificate = CertificateAuthority().issue().write(running.enter_context(ScratchFolder("tls")).path)
        broker = running.enter_context(
            KafkaBroker(
                image=folder,
                listeners=[Listener(name="SASL_SSL", security_protocol="SASL_SSL")],
                certificate=certificate,
                telemetry_plugin=True,
                jvm_flags=archiving[jvm.BROKER_ARCHIVE],
            )
        )
        broker.alter_client_metrics("all", ["*"], 500)
        broker.create_topic("warm-up")
        with contextlib.ExitStack() as clients:
            for mode, archive in (
                (Mode.PRODUCER, jvm.PRODUCER_ARCHIVE),
                (Mode.CONSUMER, jvm.CONSUMER_ARCHIVE),
            ):
                client = clients.enter_context(
                    JavaClient(
                        mode,
                        bootstrap=f"{LOOPBACK}:{broker.port('SASL_SSL')}",
                        topic="warm-up",
                        security=Security(login=login, ca=certificate.ca),
                        jvm_flags=archiving[archive],
                    )
                )
                client.wait_for_records(1)
            broker.wait_for_log('"telemetry_push"')
        broker.stop()
    for name in archiving:
        if not (folder / name).is_file():
            raise BuildError(f"the Java run that should have left {name} did not")

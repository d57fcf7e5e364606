"""The dropped API versions are those that Kafka's message definitions no longer have."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import pytest

from receiver.catalogue.dropped_versions import DROPPED_VERSIONS
from tests.testbed import parts
from tests.testbed.parts import KAFKA_VERSION, OLDER_KAFKA_VERSIONS

_LAST_BEFORE_4 = "3.9.2"


def lowest(version: str) -> dict[int, int | None]:
    """The lowest version of each request in a release; None: the request is gone."""
    part = parts.OLDER_KAFKAS.get(version, parts.KAFKA)
    jar: Path = part.require() / "jars" / f"kafka-clients-{version}.jar"
    found: dict[int, int | None] = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"common/message/\w+Request\.json", name):
                text = re.sub(r"//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                document = json.loads(text)
                versions = document["validVersions"]
                begin = re.match(r"\d+", versions)
                if "apiKey" in document:
                    found[document["apiKey"]] = None if begin is None else int(begin[0])
    return found


@pytest.mark.full
@pytest.mark.parametrize("version", [*OLDER_KAFKA_VERSIONS, KAFKA_VERSION])
def test_dropped_versions_are_those_of_a_release(version: str) -> None:
    before, since = lowest(_LAST_BEFORE_4), lowest(version)
    minor = ".".join(version.split(".")[:2])
    gone = {key: since[key] for key in before if key in since and since[key] != before[key]}
    assert {key: dropped.lowest for key, dropped in DROPPED_VERSIONS.up_to(minor).items()} == gone

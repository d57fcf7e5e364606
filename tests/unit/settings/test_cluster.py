"""`cluster`: the members, and what is refused."""

from pathlib import Path

import pytest

from receiver.settings.load import load
from tests.unit.settings.test_load import MINIMAL, failure, write


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ('["https://127.0.0.1:8642", "http://[::1]:8643/"]', ("https://127.0.0.1:8642", "http://[::1]:8643")),
        ('"dns://receivers.kafka.svc:8642"', "dns://receivers.kafka.svc:8642"),
    ],
)
def test_members_are_urls_or_a_name(tmp_path: Path, members: str, expected: object) -> None:
    settings = load(write(tmp_path, f"{MINIMAL}\ncluster: {{members: {members}}}"), {})
    assert settings.cluster is not None
    assert settings.cluster.members == expected
    assert (
        type(settings).model_validate_json(settings.model_dump_json(by_alias=True), strict=True) == settings
    )


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ("[]", "the URL of one receiver at least"),
        ("5", "expected dns://NAME:PORT, or a list of URLs"),
        ('"https://127.0.0.1:8642"', "expected dns://NAME:PORT, or a list of URLs"),
        ('"dns://name"', "expected host:port"),
        ('"dns://name:0"', "the port must not be 0"),
        ('["127.0.0.1:8642"]', "expected the URL of a receiver's REST API"),
        ('["http://name:99999"]', "the port must be a number up to 65535; expected the URL"),
        ('["http://${host}:8642"]', "variables such as ${host} are not replaced here"),
        ('["http://otel..svc:8642"]', "otel..svc has an empty label"),
        ('["http://name/v1"]', "expected the URL of a receiver's REST API"),
        ('["http://user:geheim@name:1"]', "must not hold a password"),
        ('["http://a:1", "http://a:1/"]', "the same URL is given twice"),
        (str([f"http://a:{port}" for port in range(1, 66)]), "65 members are more than 64"),
    ],
)
def test_other_members_are_refused(tmp_path: Path, members: str, problem: str) -> None:
    line = failure(tmp_path, f"{MINIMAL}\ncluster: {{members: {members}}}")
    assert line.startswith("receiver.yaml: cluster.members")
    assert problem in line


def test_an_error_shows_no_password(tmp_path: Path) -> None:
    assert "geheim" not in failure(tmp_path, MINIMAL + '\ncluster: {members: ["http://user:geheim@name:1"]}')

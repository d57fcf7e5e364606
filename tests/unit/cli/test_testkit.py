"""``testkit``: options that don't fit are refused before anything listens or is asked."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import Run

AGAINST = ("--against", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--tls-ca", "ca.pem"), "only with --against"),
        (("--sasl-mechanism", "PLAIN"), "only with --against"),
        ((*AGAINST, "--sasl-mechanism", "GSSAPI"), "GSSAPI: is none of PLAIN, SCRAM-SHA-256"),
        ((*AGAINST, "--sasl-user", "alice"), "KAFKA_TELEMETRY_TESTKIT_PASSWORD"),
        ((*AGAINST, "--tls-ca", "/nonexistent.pem"), "No such file or directory"),
        ((*AGAINST, "--tls-ca", __file__), "is no PEM file with a certificate"),
        ((*AGAINST, "--tls-key", "key.pem"), "give both --tls-certificate and --tls-key"),
        (AGAINST, "Connection refused"),
    ],
)
def test_options_that_do_not_fit_name_the_problem(run: Run, arguments: tuple[str, ...], says: str) -> None:
    found = run("testkit", *arguments)
    assert found.exit_code == 2
    assert says in " ".join(found.stderr.replace("│", " ").split())

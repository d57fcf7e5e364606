"""Certificates, issued once: that takes longer than using them."""

from __future__ import annotations

import pytest

from tests.unit.gateway.tls import Certificates, issue


@pytest.fixture(scope="package")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return issue(tmp_path_factory.mktemp("certificates"))

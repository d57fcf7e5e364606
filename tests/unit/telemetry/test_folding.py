"""Client ids with generated parts (``telemetry.series.client_id_folding``)."""

from __future__ import annotations

from receiver.settings.metric_processing import ClientIdFoldingSettings
from receiver.telemetry.folding import ClientIdFolding
from receiver.telemetry.identity import MAX_TEXT_CHARS

_POD = ClientIdFoldingSettings(pattern=r"(.*)-[0-9a-f]{8,10}-[a-z0-9]{5}", replacement=r"\1")
_UUID = ClientIdFoldingSettings(
    pattern=r"(.*?)-?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", replacement=r"\1-*"
)


def test_generated_parts_are_folded() -> None:
    folding = ClientIdFolding((_POD, _UUID))
    assert folding.fold("orders-5d9c7b4f6d-x2k8p") == "orders"
    assert folding.fold("orders-5d9c7b4f6d-zzzzz") == "orders"
    assert folding.fold("app-0f3a1c2e-1111-2222-3333-0123456789ab") == "app-*"
    assert folding.fold("plain") == "plain"
    assert folding.fold("") == ""


def test_the_first_matching_rule_applies() -> None:
    everything = ClientIdFoldingSettings(pattern=".*", replacement="one")
    assert ClientIdFolding((_POD, everything)).fold("orders-5d9c7b4f6d-x2k8p") == "orders"
    assert ClientIdFolding((everything, _POD)).fold("orders-5d9c7b4f6d-x2k8p") == "one"


def test_without_rules_a_client_id_is_unchanged() -> None:
    assert ClientIdFolding(()).fold("orders-5d9c7b4f6d-x2k8p") == "orders-5d9c7b4f6d-x2k8p"


def test_a_folded_id_has_a_maximum_length() -> None:
    rule = ClientIdFoldingSettings(pattern="(.*)", replacement=r"\1" * 200)
    assert ClientIdFolding((rule,)).fold("x" * 512) == "x" * MAX_TEXT_CHARS


def test_an_id_that_is_not_unicode_is_folded() -> None:
    rule = ClientIdFoldingSettings(pattern=r"(.*)-\d+", replacement=r"\1")
    assert ClientIdFolding((rule,)).fold("\udcff-7") == "?"

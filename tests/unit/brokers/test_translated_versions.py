"""Which RPCs are offered in KIP-1313's version on behalf of a broker."""

from __future__ import annotations

import pytest

from receiver.brokers.translated_versions import translated_versions
from receiver.wire import api_keys


def test_only_rpcs_whose_highest_version_is_right_before_kip_1313s_are_translated() -> None:
    broker_ranges = {
        api_keys.PRODUCE: (3, 13),
        api_keys.METADATA: (0, 12),
        api_keys.SASL_HANDSHAKE: (0, 1),
        api_keys.API_VERSIONS: (0, 5),
        22: (0, 6),  # InitProducerId: Kafka 4.4 has an unstable version 6 with request header v2
        9999: (0, 0),
    }
    assert translated_versions(broker_ranges) == {
        api_keys.PRODUCE: (3, 14),
        api_keys.API_VERSIONS: (0, 6),
    }


def test_the_telemetry_rpcs_are_never_translated() -> None:
    broker_ranges = {api_keys.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0), api_keys.PUSH_TELEMETRY: (0, 0)}
    assert translated_versions(broker_ranges).keys() == {api_keys.API_VERSIONS}


@pytest.mark.parametrize("highest", range(6))
def test_api_versions_is_translated_for_any_older_broker(highest: int) -> None:
    assert translated_versions({api_keys.API_VERSIONS: (0, highest)}) == {api_keys.API_VERSIONS: (0, 6)}


def test_a_broker_with_kip_1313s_version_is_left_alone() -> None:
    assert translated_versions({api_keys.API_VERSIONS: (0, 6)}) == {}

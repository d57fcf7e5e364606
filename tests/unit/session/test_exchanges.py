"""The registry of exchanges: each API key has one kind of request."""

from __future__ import annotations

from collections import Counter

import pytest

from receiver.brokers.upstream import Upstream
from receiver.session.exchanges import BY_KEY, KINDS, LONGEST, watched_keys
from receiver.wire import api_keys


def test_each_key_has_one_kind() -> None:
    assert Counter(key for kind in KINDS for key in kind.keys) == dict.fromkeys(BY_KEY, 1)
    assert LONGEST.keys() <= BY_KEY.keys()


@pytest.mark.parametrize("translates", [False, True])
@pytest.mark.parametrize("answers_config_requests", [False, True])
@pytest.mark.parametrize("reads_resources", [False, True])
def test_what_is_watched_can_begin(
    translates: bool, answers_config_requests: bool, reads_resources: bool
) -> None:
    upstream = Upstream(
        translates=translates,
        answers_config_requests=answers_config_requests,
        reads_resources=reads_resources,
    )
    watched = watched_keys(upstream)
    assert {api_keys.API_VERSIONS, api_keys.PUSH_TELEMETRY, api_keys.SASL_HANDSHAKE} <= watched
    assert (api_keys.OFFSET_DELETE in watched) == translates
    assert watched <= BY_KEY.keys()

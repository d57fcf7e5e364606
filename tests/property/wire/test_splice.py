"""Editing a response by bytes gives what decoding, editing and encoding it would give."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from receiver.wire import k18_api_versions as k18
from receiver.wire.primitives import Reader
from tests.exploration import examples
from tests.property.wire.strategies import api_versions_responses, int16s

ranges_to_list = st.dictionaries(st.integers(0, 90) | int16s, st.tuples(int16s, int16s), max_size=5)


def _edited(response: k18.ApiVersionsResponse, ranges: dict[int, tuple[int, int]]) -> k18.ApiVersionsResponse:
    """Apply the rule to values: replace in place, insert in order, or append if not ordered."""
    if response.error_code != 0 or not response.api_keys:
        return response
    keys = [entry.api_key for entry in response.api_keys]
    entries = [
        replace(entry, min_version=ranges[entry.api_key][0], max_version=ranges[entry.api_key][1])
        if entry.api_key in ranges
        else entry
        for entry in response.api_keys
    ]
    entries += [
        k18.ApiVersion(api_key=key, min_version=ranges[key][0], max_version=ranges[key][1])
        for key in sorted(ranges)
        if key not in keys
    ]
    if keys == sorted(keys):
        entries.sort(key=lambda entry: entry.api_key)
    return replace(response, api_keys=tuple(entries))


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("tagged", [True, False])
@pytest.mark.parametrize("version", k18.SUPPORTED_VERSIONS)
@settings(max_examples=examples(30))
@given(data=st.data(), ranges=ranges_to_list)
def test_splice_is_decode_edit_encode(
    version: int, tagged: bool, ascending: bool, data: st.DataObject, ranges: dict[int, tuple[int, int]]
) -> None:
    response = data.draw(
        api_versions_responses(version, unknown=tagged, error_codes=st.sampled_from([0, 0, 0, 42]))
    )
    if ascending:
        response = replace(response, api_keys=tuple(sorted(response.api_keys, key=lambda e: e.api_key)))
    body = k18.encode_response(response, version)
    spliced = k18.splice_api_keys(body, version, ranges)
    assert spliced == k18.encode_response(_edited(response, ranges), version)
    # A second time changes nothing, and what was put in can be read.
    assert k18.splice_api_keys(spliced, version, ranges) == spliced
    if response.error_code == 0 and response.api_keys:
        assert k18.read_ranges(spliced, version, ranges) == ranges
    else:
        assert spliced == body


@pytest.mark.parametrize("version", k18.SUPPORTED_VERSIONS)
@settings(max_examples=examples(30))
@given(data=st.data(), keys=st.lists(st.integers(0, 90), max_size=5))
def test_read_ranges_equals_the_entries(version: int, data: st.DataObject, keys: list[int]) -> None:
    response = data.draw(api_versions_responses(version))
    body = k18.encode_response(response, version)
    listed: dict[int, tuple[int, int]] = {}
    for entry in k18.decode_response(Reader(body), version).api_keys:
        if entry.api_key in keys:
            listed.setdefault(entry.api_key, (entry.min_version, entry.max_version))
    assert k18.read_ranges(body, version, keys) == listed

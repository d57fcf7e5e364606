"""Any bytes give a subject or the one error, and no value can forge another attribute."""

from __future__ import annotations

import contextlib
import re

from hypothesis import given
from hypothesis import strategies as st

from receiver.principal.distinguished_name import MalformedCertificateError, subject_name
from tests.unit.principal.certificates import COMMON_NAME, UTF8, certificate, name

GOOD = certificate(name([(COMMON_NAME, UTF8, b"alice"), ("2.5.4.10", UTF8, b"Acme")]))

_ATTRIBUTE = re.compile(r"CN=((?:\\00|\\.|[^\\,+])*)", re.DOTALL)


@given(st.binary(max_size=60), st.integers(0, len(GOOD)), st.integers(0, 20))
def test_only_the_one_error_is_raised(junk: bytes, position: int, length: int) -> None:
    with contextlib.suppress(MalformedCertificateError):
        subject_name(junk)
    with contextlib.suppress(MalformedCertificateError):
        subject_name(GOOD[:position] + junk + GOOD[position + length :])


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), min_size=1, max_size=4))
def test_values_come_back_from_the_text(values: list[str]) -> None:
    subject = subject_name(certificate(name(*([(COMMON_NAME, UTF8, value.encode())] for value in values))))
    read = []
    position = 0
    while (found := _ATTRIBUTE.match(subject, position)) is not None:
        read.append(re.sub(r"\\(00|.)", lambda m: "\0" if m[1] == "00" else m[1], found[1], flags=re.DOTALL))
        position = found.end() + 1
    assert position == len(subject) + 1
    assert read == values[::-1]

"""The identity of a push."""

from dataclasses import replace

from tests.unit.host.support import push


def test_the_identity_is_instance_time_and_sequence() -> None:
    one = push(4)
    assert one.identity == ("AAAAAAAAAAAAAAAAAAAAAQ", 1_700_000_000_000_000_000, 5)
    again = replace(one, context=replace(one.context, connection_id="another"))
    assert again.identity == one.identity
    assert push(5).identity != one.identity

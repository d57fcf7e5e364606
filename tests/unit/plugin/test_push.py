"""What a push is told from others by."""

from dataclasses import replace

from tests.unit.host.support import push


def test_its_identity_is_its_instance_the_time_and_its_number() -> None:
    one = push(4)
    assert one.identity == ("AAAAAAAAAAAAAAAAAAAAAQ", 1_700_000_000_000_000_000, 5)
    again = replace(one, context=replace(one.context, connection_id="another"))
    assert again.identity == one.identity
    assert push(5).identity != one.identity

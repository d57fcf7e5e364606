"""Remembers the owners of delegation tokens, from broker responses (KIP-48).

A login with a token names only the token's id, while the broker treats the client as the token's
owner. The owner is in the responses to CreateDelegationToken and DescribeDelegationToken that pass
on any connection.

A token's HMAC must not be kept, because anybody can log in with it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from receiver.principal.sasl import MAX_NAME_BYTES
from receiver.wire import api_keys, k38_create_delegation_token, k41_describe_delegation_token
from receiver.wire.errors import WireError
from receiver.wire.headers import RequestHeader, at_body
from receiver.wire.k38_create_delegation_token import DelegationToken

#: Most tokens to remember. The least recently learned or used token is forgotten first.
_MAX_TOKENS: Final = 16_384

#: Longest token id to remember, in bytes of UTF-8; Kafka's have 22.
_MAX_ID_BYTES: Final = 255


class DelegationTokens:
    """The owners of delegation tokens, shared by all sessions in front of one broker.

    Entries do not expire, because a token's owner never changes and its random id is never reused.
    If the broker names two owners of one token anyway, the owner is unknown.

    Attributes:
        on_learned: Called with a token's id and its owner when a response has named them.
    """

    __slots__ = ("_owners", "on_learned")

    def __init__(self) -> None:
        self._owners: OrderedDict[str, str | None] = OrderedDict()  # None: the broker named two
        self.on_learned: Callable[[str, str], None] = _ignore

    def __len__(self) -> int:
        return len(self._owners)

    def owner(self, token_id: str) -> str | None:
        """Return the principal of a token's owner (``User:alice``), or None."""
        owner = self._owners.get(token_id)
        if owner is not None:
            self._owners.move_to_end(token_id)
        return owner

    def learn(self, header: RequestHeader, response: bytes) -> None:
        """Remember the tokens in a response; a malformed response is ignored.

        Args:
            header: The header of a CreateDelegationToken or DescribeDelegationToken request.
            response: The broker's response, without its length.
        """
        try:
            tokens = _tokens(header, response)
        except (WireError, ValueError):
            return
        for token in tokens:
            owner = f"{token.principal_type}:{token.principal_name}"
            if self.keep(token.token_id, owner):
                self.on_learned(token.token_id, owner)

    def owners(self) -> list[tuple[str, str]]:
        """Return the ids and the owners of all tokens with one owner."""
        return [(token_id, owner) for token_id, owner in self._owners.items() if owner is not None]

    def keep(self, token_id: str, owner: str) -> bool:
        """Remember the owner of a token; return whether that is new."""
        if len(token_id.encode()) > _MAX_ID_BYTES or len(owner.encode()) > MAX_NAME_BYTES:
            return False
        is_new = token_id not in self._owners
        if self._owners.setdefault(token_id, owner) != owner:
            is_new = self._owners[token_id] is not None
            self._owners[token_id] = None
        self._owners.move_to_end(token_id)
        if len(self._owners) > _MAX_TOKENS:
            self._owners.popitem(last=False)
        return is_new


def _ignore(token_id: str, owner: str) -> None:
    """Tell nobody."""


def _tokens(header: RequestHeader, response: bytes) -> tuple[DelegationToken, ...]:
    reader = at_body(response, header.api_key, header.api_version)
    if header.api_key == api_keys.DESCRIBE_DELEGATION_TOKEN:
        return k41_describe_delegation_token.decode_response(reader, header.api_version)
    token = k38_create_delegation_token.decode_response(reader, header.api_version)
    return () if token is None else (token,)

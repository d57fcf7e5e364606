"""A client of TLS 1.3 whose records a test writes as it likes: KeyUpdates, empty ones, broken ones.

OpenSSL does the handshake and tells its traffic secret; from there on this module encrypts. What
the server says is still read by OpenSSL.

Source: RFC 8446, sections 4.6.3 (KeyUpdate), 5 (record protocol), 6 (alerts) and 7 (keys).
"""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, HashAlgorithm
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, APPLICATION_DATA = range(20, 24)
#: The most that a record may hold.
MAX_CONTENT_BYTES: Final = 16_384

_WARNING, _FATAL = 1, 2
_CLOSE_NOTIFY: Final = 0
_KEY_UPDATE: Final = 24
_TAG_BYTES: Final = 16
_NONCE_BYTES: Final = 12
#: Hash and key length by cipher suite.
_SUITES: Final[dict[str, tuple[type[HashAlgorithm], int]]] = {
    "TLS_AES_128_GCM_SHA256": (SHA256, 16),
    "TLS_AES_256_GCM_SHA384": (SHA384, 32),
    "TLS_CHACHA20_POLY1305_SHA256": (SHA256, 32),
}


def plaintext_record(kind: int, content: bytes) -> bytes:
    """Write a record that is not encrypted."""
    return bytes((kind, 3, 3)) + len(content).to_bytes(2, "big") + content


class RecordWriter:
    """Encrypts one direction of a connection.

    Args:
        suite: The cipher suite's name.
        secret: The direction's application traffic secret.
    """

    def __init__(self, suite: str, secret: bytes) -> None:
        self._hash, self._key_bytes = _SUITES[suite]
        self._cipher = ChaCha20Poly1305 if "CHACHA20" in suite else AESGCM
        self._use(secret)

    def record(self, kind: int, content: bytes, *, padding: int = 0) -> bytes:
        """Write a record of any inner type, with so many bytes of padding."""
        inner = content + bytes((kind,)) + bytes(padding)
        header = bytes((APPLICATION_DATA, 3, 3)) + (len(inner) + _TAG_BYTES).to_bytes(2, "big")
        nonce = (int.from_bytes(self._iv, "big") ^ self._sequence).to_bytes(_NONCE_BYTES, "big")
        self._sequence += 1
        return header + self._aead.encrypt(nonce, inner, header)

    def application_data(self, data: bytes, *, padding: int = 0) -> bytes:
        """Write a record of application data, which may be empty."""
        return self.record(APPLICATION_DATA, data, padding=padding)

    def key_update(self, *, requested: bool = False, records: int = 1, padding: int = 0) -> bytes:
        """Write a KeyUpdate, and go on with the next key.

        Args:
            requested: Whether the peer is asked to change its key too.
            records: Over how many records the message is spread.
            padding: Bytes of padding of each record.
        """
        message = bytes((_KEY_UPDATE, 0, 0, 1, requested))
        size = -(-len(message) // records)
        parts = [message[at : at + size] for at in range(0, len(message), size)]
        written = b"".join(self.record(HANDSHAKE, part, padding=padding) for part in parts)
        self._use(self._derived(b"traffic upd", self._hash().digest_size))
        return written

    def alert(self, description: int, *, fatal: bool = True) -> bytes:
        """Write an alert."""
        return self.record(ALERT, bytes((_FATAL if fatal else _WARNING, description)))

    def close_notify(self) -> bytes:
        """Write the alert that ends the stream."""
        return self.alert(_CLOSE_NOTIFY, fatal=False)

    def _use(self, secret: bytes) -> None:
        self._secret = secret
        self._sequence = 0
        self._aead = self._cipher(self._derived(b"key", self._key_bytes))
        self._iv = self._derived(b"iv", _NONCE_BYTES)

    def _derived(self, label: bytes, length: int) -> bytes:
        """HKDF-Expand-Label with an empty context."""
        full = b"tls13 " + label
        info = length.to_bytes(2, "big") + bytes((len(full),)) + full + b"\0"
        return HKDFExpand(self._hash(), length, info).derive(self._secret)


class Tls13Client:
    """A client of TLS 1.3 between two buffers of bytes.

    Args:
        ca: The file of the authority that signed the server's certificate.
        server_name: Whom it wants to speak to.
    """

    def __init__(self, ca: Path, *, server_name: str = "localhost") -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(ca)
        descriptor, path = tempfile.mkstemp(prefix="tls13-", suffix=".keys")
        os.close(descriptor)
        self._log = Path(path)
        context.keylog_filename = path
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=server_name)
        self._writer: RecordWriter | None = None

    def shake_hands(self, received: bytes) -> bytes:
        """Go on with the handshake.

        Args:
            received: What the server said.

        Returns:
            What to say to the server; :attr:`is_ready` tells whether it was the last.

        Raises:
            ssl.SSLError: The two can't agree.
        """
        self._in.write(received)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return self._out.read()
        suite = self._tls.cipher()
        assert suite is not None
        self._writer = RecordWriter(suite[0], _client_secret(self._log))
        self._log.unlink()
        return self._out.read()

    @property
    def is_ready(self) -> bool:
        """Whether the handshake is over."""
        return self._writer is not None

    @property
    def records(self) -> RecordWriter:
        """What writes this client's records, once the handshake is over."""
        assert self._writer is not None
        return self._writer

    def read(self, received: bytes) -> bytes:
        """Decrypt what the server said.

        Raises:
            ssl.SSLError: It can't be decrypted, or is an alert.
        """
        self._in.write(received)
        data = bytearray()
        while True:
            try:
                some = self._tls.read(65_536)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                return bytes(data)
            if not some:
                return bytes(data)
            data += some


def _client_secret(log: Path) -> bytes:
    # NSS Key Log Format: label, client random, secret.
    for line in log.read_text().splitlines():
        if line.startswith("CLIENT_TRAFFIC_SECRET_0 "):
            return bytes.fromhex(line.rpartition(" ")[2])
    raise ValueError("the handshake has told no client traffic secret")

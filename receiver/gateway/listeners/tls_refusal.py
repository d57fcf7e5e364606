"""The likely cause of a client's failed TLS handshake, for the log."""

from __future__ import annotations

import ssl
from typing import Final

_NO_TLS: Final = "the client does not use TLS: set its security.protocol to SSL or SASL_SSL"
_UNTRUSTED: Final = (
    "the client does not trust the listener's certificate: give it the CA (ssl.truststore.location, or "
    "ssl.ca.location of librdkafka), and connect to a name in the certificate"
)
_VERSIONS: Final = "the client and listeners[].tls.min_version have no TLS version or cipher in common"
_NO_CERTIFICATE: Final = (
    "the client has no certificate: give it one (ssl.keystore.location), or set "
    "listeners[].tls.client_auth to requested"
)

#: Parts of OpenSSL's reason, and the cause.
_CAUSES: Final = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "HTTP_REQUEST": "an HTTP client, such as a health check, connects to a Kafka port",
    "UNKNOWN_CA": _UNTRUSTED,
    "CERTIFICATE_UNKNOWN": _UNTRUSTED,
    # OpenSSL's clients (librdkafka) send it for a wrong name, Go's for any certificate.
    "ALERT_BAD_CERTIFICATE": _UNTRUSTED,
    "ALERT_CERTIFICATE_EXPIRED": "the listener's certificate has expired: replace its files",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": _NO_CERTIFICATE,
    "UNSUPPORTED_PROTOCOL": _VERSIONS,
    "PROTOCOL_VERSION": _VERSIONS,
    "NO_SHARED_CIPHER": _VERSIONS,
}


def likely_cause(error: ssl.SSLError) -> str | None:
    """Return what is probably wrong, and how to correct it.

    None if the error says nothing.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        if "expired" in error.verify_message:
            return "the client's certificate has expired: renew it"
        if "purpose" in error.verify_message:
            return "the client shows a server's certificate: issue one with the extended usage clientAuth"
        return (
            "the client's certificate is not of an authority in listeners[].tls.client_ca_file: add that CA, "
            "and let the client send the whole chain"
        )
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "the client left during the handshake: see its own log"
    reason = error.reason or ""
    return next((cause for part, cause in _CAUSES.items() if part in reason), None)

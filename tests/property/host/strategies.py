"""Pushes of any content."""

from __future__ import annotations

from hypothesis import strategies as st

from receiver.plugin import ClientTelemetryContext, ClientTelemetryPayload, Push

_text = st.text(max_size=30)
_number = st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1)

pushes = st.builds(
    Push,
    context=st.builds(
        ClientTelemetryContext,
        connection_id=_text,
        listener=_text,
        security_protocol=_text,
        source_address=_text,
        source_port=_number,
        principal=_text,
        client_id=_text,
        client_software_name=_text,
        client_software_version=_text,
        broker_id=_number,
        cluster_id=st.none() | _text,
        subscription_id=_number,
        push_interval_ms=_number,
        received_at_ns=_number,
        sasl_mechanism=st.none() | _text,
        request_version=st.none() | _number,
        correlation_id=st.none() | _number,
    ),
    payload=st.builds(
        ClientTelemetryPayload,
        client_instance_id=_text,
        terminating=st.booleans(),
        data=st.binary(max_size=300),
        sequence=_number,
        push_id=_text,
        content_type=_text,
    ),
)

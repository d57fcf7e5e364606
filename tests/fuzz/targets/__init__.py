"""What is fuzzed, by name."""

from tests.fuzz.target import Target
from tests.fuzz.targets import (
    addresses,
    bounds,
    bridge,
    channel,
    codecs,
    coordinators,
    cumulative,
    link,
    otlp,
    principal,
    proxy,
    sasl,
    session,
    spool,
    spool_files,
    steps,
    subscriptions,
    testkit,
    tls,
    wire,
)

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        wire.TARGET,
        session.TARGET,
        addresses.TARGET,
        bounds.TARGET,
        coordinators.TARGET,
        codecs.TARGET,
        otlp.TARGET,
        steps.TARGET,
        proxy.TARGET,
        link.TARGET,
        bridge.TARGET,
        spool.TARGET,
        spool_files.TARGET,
        channel.TARGET,
        cumulative.TARGET,
        sasl.TARGET,
        tls.TARGET,
        principal.RULES,
        principal.NAMES,
        subscriptions.TARGET,
        testkit.TARGET,
    )
}

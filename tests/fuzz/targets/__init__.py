"""What is fuzzed, by name."""

from tests.fuzz.target import Target
from tests.fuzz.targets import codecs, otlp, principal, proxy, sasl, session, spool, wire

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        wire.TARGET,
        session.TARGET,
        codecs.TARGET,
        otlp.TARGET,
        proxy.TARGET,
        spool.TARGET,
        sasl.TARGET,
        principal.RULES,
        principal.NAMES,
    )
}

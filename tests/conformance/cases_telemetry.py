"""Cases of GetTelemetrySubscriptions and PushTelemetry, and the order of their errors."""

from __future__ import annotations

from typing import Final

from tests.conformance.conversation import Case
from tests.conformance.payloads import (
    BOMBS,
    COMPRESSED,
    CORRUPT,
    GARBAGE,
    GZIP,
    OTHER_MESSAGE,
    TELEMETRY_MAX_BYTES,
    ZSTD,
)
from tests.conformance.requests import NO_UTF8, RESERVED_ID, UNKNOWN_TAGS, ZERO_ID
from tests.conformance.words import (
    api_versions,
    change_subscription,
    connect_again,
    get,
    push,
    reconnect,
    wait,
)

_GETS = (
    Case(name="get with the zero id", steps=(get(zero=True),)),
    Case(name="get with the zero id twice", steps=(get("a", zero=True), get("b", zero=True))),
    Case(name="get with the reserved id", steps=(get(reserved=True),)),
    Case(name="get of an instance unknown so far", steps=(get(),)),
    Case(name="get where nothing is subscribed", steps=(get(),), subscribed="none"),
    Case(name="get where everything is subscribed", steps=(get(),), subscribed="all"),
    Case(name="get without a client id", steps=(get(client_id=None),)),
    Case(name="get with an empty client id", steps=(get(client_id=""),)),
    Case(name="get with a client id that is no UTF-8", steps=(get(client_id=NO_UTF8),)),
    Case(name="get too early", steps=(get(), get())),
    Case(name="get after an interval", steps=(get(), wait(1.5), get()), subscribed="fast"),
    Case(name="get too early right after a push", steps=(get(), push(), get())),
    Case(
        name="get after an interval after a push", steps=(get(), push(), wait(1.5), get()), subscribed="fast"
    ),
    Case(name="get too early, then later", steps=(get(), get(), wait(1.5), get()), subscribed="fast"),
    Case(name="get after the subscription changed", steps=(get(), change_subscription(), get())),
    Case(name="get twice after the subscription changed", steps=(get(), change_subscription(), get(), get())),
    Case(
        name="get after a wrong subscription id",
        steps=(get(), push(subscription_off_by=1), get()),
    ),
    Case(
        name="get twice after a wrong subscription id",
        steps=(get(), push(subscription_off_by=1), get(), get()),
    ),
    Case(name="get after an unknown codec", steps=(get(), push(codec=5), get())),
    Case(name="get too early after bad metrics", steps=(get(), push(metrics=GARBAGE, codec=GZIP), get())),
    Case(
        name="get too early after a throttled push after an unknown codec",
        steps=(get(), push(codec=5), push(), get()),
    ),
    Case(name="get of two instances on one connection", steps=(get("a"), get("b"), get("a"), get("b"))),
    Case(name="get on another connection", steps=(get(), connect_again(), get())),
    Case(name="get after a disconnect", steps=(get(), reconnect(), get())),
)

_PUSHES = (
    Case(name="push right after get", steps=(get(), push())),
    Case(name="push right after get with an id from the peer", steps=(get(zero=True), push())),
    Case(name="push with the zero id", steps=(get(), push(asked_with=ZERO_ID))),
    Case(name="push with the reserved id", steps=(get(), push(asked_with=RESERVED_ID))),
    Case(name="push of an instance that never asked", steps=(push(),)),
    Case(name="push of an instance that never asked, then get", steps=(push(), get(), push())),
    Case(name="push too early after a push", steps=(get(), push(), push())),
    Case(name="push after an interval", steps=(get(), push(), wait(1.5), push()), subscribed="fast"),
    Case(
        name="push after a get after a push",
        steps=(get(), push(), wait(1.5), get(), push()),
        subscribed="fast",
    ),
    Case(
        name="push too early, then later",
        steps=(get(), push(), push(), wait(1.5), push()),
        subscribed="fast",
    ),
    Case(name="push with a wrong subscription id", steps=(get(), push(subscription_off_by=1))),
    Case(
        name="push with the right subscription id after a wrong one",
        steps=(get(), push(subscription_off_by=1), push()),
    ),
    Case(
        name="push with the right subscription id after a wrong one and get",
        steps=(get(), push(subscription_off_by=1), get(), push()),
    ),
    Case(
        name="push with the old subscription id after a change",
        steps=(get(), change_subscription(), push(), get(), push()),
    ),
    Case(name="push with an unknown codec", steps=(get(), push(codec=5))),
    Case(name="push with a negative codec", steps=(get(), push(codec=-1))),
    Case(
        name="push with a wrong subscription id and codec",
        steps=(get(), push(subscription_off_by=1, codec=5)),
    ),
    Case(
        name="push too early with a wrong subscription id", steps=(get(), push(), push(subscription_off_by=1))
    ),
    Case(name="push without a client id", steps=(get(client_id=None), push(client_id=None))),
    Case(name="push under another client id", steps=(get(), push(client_id="slow-other"))),
    Case(name="push of two instances on one connection", steps=(get("a"), get("b"), push("a"), push("b"))),
    Case(name="push on another connection than the get", steps=(get(), connect_again(), push())),
    Case(name="push after a disconnect", steps=(get(), reconnect(), push())),
    Case(name="push after a disconnect and get", steps=(get(), push(), reconnect(), get(), push())),
)

_TERMINATING = (
    Case(name="terminating push", steps=(get(), push(terminating=True))),
    Case(name="terminating push too early", steps=(get(), push(), push(terminating=True))),
    Case(name="terminating push twice", steps=(get(), push(terminating=True), push(terminating=True))),
    Case(name="push after a terminating push", steps=(get(), push(terminating=True), push())),
    Case(
        name="push after a terminating push and an interval",
        steps=(get(), push(terminating=True), wait(1.5), push()),
        subscribed="fast",
    ),
    Case(name="get after a terminating push", steps=(get(), push(terminating=True), get())),
    Case(
        name="get and push after a terminating push and an interval",
        steps=(get(), push(terminating=True), wait(1.5), get(), push()),
        subscribed="fast",
    ),
    Case(
        name="push after a terminating push with a wrong subscription id",
        steps=(get(), push(terminating=True, subscription_off_by=1), get(), push()),
    ),
    Case(
        name="push after a terminating push with an unknown codec",
        steps=(get(), push(terminating=True, codec=5), get(), push()),
    ),
    Case(
        name="push after a terminating push with corrupt metrics",
        steps=(get(), push(terminating=True, codec=GZIP, metrics=GARBAGE), wait(1.5), push()),
        subscribed="fast",
    ),
    Case(
        name="push after a terminating push that is too large",
        steps=(get(), push(terminating=True, metrics=bytes(TELEMETRY_MAX_BYTES + 1)), wait(1.5), push()),
        subscribed="fast",
    ),
    Case(
        name="terminating push after a terminating push with a wrong subscription id",
        steps=(get(), push(terminating=True, subscription_off_by=1), push(terminating=True)),
    ),
    Case(name="terminating push without metrics", steps=(get(), push(terminating=True, metrics=b""), push())),
    Case(name="terminating push of an instance that never asked", steps=(push(terminating=True), push())),
    Case(
        name="terminating push on another connection",
        steps=(get(), connect_again(), push(terminating=True), push()),
    ),
    Case(
        name="terminating push, then a disconnect",
        steps=(get(), push(terminating=True), reconnect(), get(), push()),
    ),
)

_METRICS = (
    *(
        Case(name=f"push in {what}", steps=(get(), push(codec=codec, metrics=metrics)))
        for what, (codec, metrics) in COMPRESSED.items()
    ),
    *(
        Case(name=f"push of {what}", steps=(get(), push(codec=codec, metrics=metrics), get(), push()))
        for what, (codec, metrics) in CORRUPT.items()
    ),
    *(
        Case(name=f"push of a bomb in {what}", steps=(get(), push(codec=codec, metrics=metrics)))
        for what, (codec, metrics) in BOMBS.items()
    ),
    Case(name="push of uncompressed garbage", steps=(get(), push(metrics=GARBAGE))),
    Case(name="push of a message without metrics", steps=(get(), push(metrics=OTHER_MESSAGE))),
    Case(
        name="push of compressed garbage", steps=(get(), push(codec=COMPRESSED["zstd"][0], metrics=GARBAGE))
    ),
    Case(name="push of empty metrics", steps=(get(), push(metrics=b""))),
    Case(name="push of empty metrics with a codec", steps=(get(), push(codec=ZSTD, metrics=b""))),
    Case(name="push of empty metrics with an unknown codec", steps=(get(), push(codec=9, metrics=b""))),
    Case(name="push of null metrics", steps=(get(), push(metrics=None))),
    Case(name="push of null metrics with a codec", steps=(get(), push(codec=ZSTD, metrics=None))),
    Case(name="push as large as may be", steps=(get(), push(codec=GZIP, metrics=bytes(TELEMETRY_MAX_BYTES)))),
    Case(name="push too large by a byte", steps=(get(), push(metrics=bytes(TELEMETRY_MAX_BYTES + 1)))),
    Case(name="push too large by far", steps=(get(), push(metrics=bytes(5 * TELEMETRY_MAX_BYTES)), get())),
    Case(
        name="push too large with an unknown codec",
        steps=(get(), push(codec=5, metrics=bytes(TELEMETRY_MAX_BYTES + 1))),
    ),
    Case(
        name="push too large with a wrong subscription id",
        steps=(get(), push(subscription_off_by=1, metrics=bytes(TELEMETRY_MAX_BYTES + 1))),
    ),
)

_BODIES = (
    Case(name="get with unknown tagged fields", steps=(get(tags=UNKNOWN_TAGS, header_tags=UNKNOWN_TAGS),)),
    Case(
        name="push with unknown tagged fields",
        steps=(get(), push(tags=UNKNOWN_TAGS, header_tags=UNKNOWN_TAGS)),
    ),
    Case(name="get of a version that is not there", steps=(get(version=2),)),
    Case(name="get of version 99", steps=(get(version=99),)),
    Case(name="get of version -1", steps=(get(version=-1),)),
    Case(name="push of a version that is not there", steps=(get(), push(version=2))),
    Case(name="push of version -1", steps=(get(), push(version=-1))),
    Case(name="get cut by a byte", steps=(get(cut=1),)),
    Case(name="get without a body", steps=(get(cut=17),)),
    Case(name="push cut by a byte", steps=(get(), push(cut=1))),
    Case(name="push cut in its metrics", steps=(get(), push(cut=10))),
    Case(name="push without a body", steps=(get(), push(metrics=b"", cut=24))),
    Case(name="get with bytes after its end", steps=(get(trailing=b"more"),)),
    Case(name="push with bytes after its end", steps=(get(), push(trailing=b"more"))),
    Case(name="telemetry before any ApiVersions", steps=(get(), push(), api_versions(3))),
    Case(name="telemetry after ApiVersions", steps=(api_versions(3), get(), push())),
)

#: Version 1 has the client instance id in its header (KIP-1313).
_VERSION_1 = (
    Case(name="get of version 1", steps=(get(version=1),)),
    Case(name="get and push of version 1", steps=(get(version=1), push(version=1))),
    Case(name="get of version 1 after ApiVersions", steps=(api_versions(5), get(version=1))),
    Case(name="get of version 1 with the zero id", steps=(get(version=1, zero=True),)),
    Case(name="get of version 1 with another id", steps=(get(version=1), get("b", version=1))),
    Case(name="get of version 0 after version 1", steps=(get(version=1), get())),
    Case(name="get of version 1 after version 0", steps=(get(), get(version=1))),
    Case(name="push of version 0 after version 1", steps=(get(version=1), push())),
    Case(
        name="get of version 1 with unknown tagged fields",
        steps=(get(version=1, tags=UNKNOWN_TAGS, header_tags=UNKNOWN_TAGS),),
    ),
    Case(name="get of version 1 cut by a byte", steps=(get(version=1, cut=1),)),
    Case(name="get of version 1 cut in its id", steps=(get(version=1, cut=5),)),
)

CASES: Final = _GETS + _PUSHES + _TERMINATING + _METRICS + _BODIES + _VERSION_1

"""The test kit in a thread, for tests that are not asynchronous."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, Self, TypeVar

from receiver.settings.hostport import HostPort
from receiver.testkit.checks.check import Severity
from receiver.testkit.endpoint import Endpoint, EndpointOptions
from receiver.testkit.judge import ClientJudgement
from receiver.testkit.kit import Credentials
from receiver.testkit.report import as_text, document
from receiver.testkit.run import judged
from receiver.testkit.script import Script, load_script

_T = TypeVar("_T")

_EVERY_S: Final = 0.05
_STOP_WITHIN_S: Final = 30.0


class TestKit:
    """Brokers on 127.0.0.1 that judge clients, within the context.

    Args:
        script: The script: a built-in one by its name, a YAML file's path, or a ``Script``.
        brokers: The number of brokers.
        credentials: The user and password of SASL PLAIN that clients need; None for none.
        tls: The server's TLS context; None for plaintext.

    Raises:
        ScriptError: The script can't be used; the text names file, field, value and fix.
    """

    __test__ = False  # no class of tests

    def __init__(
        self,
        script: str | Script = "default",
        *,
        brokers: int = 2,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._script = load_script(script) if isinstance(script, str) else script
        self._options = EndpointOptions(
            bind=tuple(HostPort(host="127.0.0.1", port=0) for _ in range(brokers)),
            credentials=credentials,
            tls=tls,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="testkit", daemon=True)
        self._endpoint: Endpoint | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._call(self._start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._call(self._running().__aexit__(None, None, None))
        finally:
            self._end()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses to connect to, as Kafka's ``bootstrap.servers``."""
        return ",".join(map(str, self._running().addresses))

    def wait_for_step(self, name: str | None = None, *, timeout_s: float = 120.0) -> None:
        """Wait until a client has met a step of the script.

        Args:
            name: The step's name; None for the last one.
            timeout_s: The longest wait.

        Raises:
            ValueError: The script has no step of that name.
            TimeoutError: No client met it in time.
        """
        names = [step.name for step in self._script.steps]
        wanted = names[-1] if name is None else name
        if wanted not in names:
            raise ValueError(f"{wanted!r} is no step of the script; its steps are {', '.join(names)}")
        until = time.monotonic() + timeout_s
        while wanted not in (met := self._in_loop(self._met)):
            if time.monotonic() > until:
                found = ", ".join(sorted(met)) or "none"
                raise TimeoutError(f"no client met step {wanted!r} in {timeout_s:g} s; met: {found}")
            time.sleep(_EVERY_S)

    def has_met_the_end(self, client_id: str) -> bool:
        """Return whether a client has met the last step of the script."""
        last = self._script.steps[-1].name
        return last in self._in_loop(lambda: self._met(client_id))

    def judge(self, client_id: str | None = None) -> list[ClientJudgement]:
        """Judge every client so far, or those with a client id."""
        wanted = (lambda _: True) if client_id is None else client_id.__eq__
        return self._in_loop(lambda: judged(self._running(), wanted))

    def report(self) -> dict[str, Any]:
        """Return the report so far, as ``--report json`` has it."""
        return document(self.judge())

    def assert_passed(
        self, client_id: str | None = None, *, severity: Severity | str = Severity.MUST
    ) -> None:
        """Fail unless a client was judged and failed no check of a severity.

        Raises:
            AssertionError: It has the failed checks as text.
        """
        clients = self.judge(client_id)
        if not clients:
            raise AssertionError("no client was judged; keep it connected for 5 seconds or more")
        wrong = [client for client in clients if client.failed(Severity(severity))]
        if wrong:
            raise AssertionError(as_text(wrong, problems_only=True))

    async def _start(self) -> None:
        self._endpoint = await Endpoint(self._script, self._options).__aenter__()

    def _met(self, client_id: str | None = None) -> set[str]:
        """Return the steps that clients have met, or those with a client id."""
        return {
            request.step
            for connection in self._running().kit.connections
            for request in connection.requests
            if request.step and client_id in {None, request.client_id}
        }

    def _running(self) -> Endpoint:
        if self._endpoint is None:
            raise RuntimeError("the test kit is not started: use it as a context manager")
        return self._endpoint

    def _in_loop(self, function: Callable[[], _T]) -> _T:
        """Call a function in the kit's thread, which changes the recording."""

        async def call() -> _T:
            return function()

        # Many clients take minutes to judge on a busy machine.
        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def _call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_STOP_WITHIN_S)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_WITHIN_S)
        self._loop.close()

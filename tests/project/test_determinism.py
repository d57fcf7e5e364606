"""No test of the gate decides by a clock or by chance; this reads the tests' code for both.

A sleep is no synchronisation: wait for a condition (``tests.testbed.process.wait_until``). The
pauses that stand already are counted by file, and the count may only fall.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import exploration
from tests.selection import is_full

TESTS = Path(__file__).parents[1]
Rule = Callable[[ast.AST], bool]
#: What the gate does not run, or what it is made of.
_LEFT_OUT = ("attacks", "dashboards", "examples", "kubernetes", "mutation", "soak", "testbed")
_LEFT_OUT_FILES = ("exploration.py", "targets.py", "images/built.py", "fuzz/__main__.py")
#: A machine may be this much slower than ours: no test may ask for more speed.
_LEAST_BOUND_S = 60
_CLOCKS = ("time.monotonic", "time.perf_counter", "time.time", "monotonic", "perf_counter")
#: Pauses by file. Each lets something happen that must not, or is the behaviour under test.
PAUSES = {
    "conformance/conversation.py": 3,
    "conformance/words.py": 2,
    "integration/gateway/conftest.py": 1,
    "integration/gateway/test_bounds.py": 2,
    "integration/gateway/test_faults.py": 1,
    "integration/gateway/test_lifecycle.py": 2,
    "integration/gateway/test_tls.py": 2,
    "integration/kip1313/test_client_instance_id.py": 1,
    "integration/kip1313/test_every_rpc.py": 1,
    "integration/rollup/store/test_merging.py": 2,
    "integration/rollup/store/test_packing.py": 5,
    "integration/rollup/test_cluster.py": 2,
    "integration/rollup/test_rollup.py": 1,
    "integration/test_clients.py": 2,
    "integration/test_subscribed_clients.py": 1,
    "unit/api/test_connections.py": 3,
    "unit/api/test_events.py": 1,
    "unit/api/test_filters.py": 1,
    "unit/api/test_server.py": 1,
    "unit/gateway/support.py": 1,
    "unit/gateway/test_connection.py": 2,
    "unit/gateway/test_listener.py": 1,
    "unit/gateway/test_load_balancers.py": 2,
    "unit/gateway/test_release.py": 3,
    "unit/gateway/test_request_memory.py": 3,
    "unit/gateway/test_storing.py": 2,
    "unit/gateway/test_tls_connection.py": 3,
    "unit/gateway/test_upstream_watch.py": 3,
    "unit/host/delivery/test_cpu_account.py": 1,
    "unit/host/delivery/test_spooling.py": 1,
    "unit/host/isolation/misbehaving.py": 3,
    "unit/host/isolation/test_proxy.py": 1,
    "unit/host/spool/test_recovery.py": 1,
    "unit/host/support.py": 1,
    "unit/host/test_host.py": 1,
    "unit/plugins/prometheus/test_remote_write.py": 1,
    "unit/plugins/prometheus/test_scrape.py": 3,
    "unit/plugins/spool_files/test_expiry.py": 1,
    "unit/plugins/spool_files/test_files.py": 1,
    "unit/store/test_subscriptions.py": 1,
    "unit/supervisor/program.py": 2,
    "unit/test_event_loop.py": 1,
}


def gate_files() -> Iterator[Path]:
    for file in sorted(TESTS.rglob("*.py")):
        name = file.relative_to(TESTS).as_posix()
        if name.split("/")[0] not in _LEFT_OUT and name not in _LEFT_OUT_FILES and not is_full(file):
            yield file


def findings(text: str, *rules: Rule) -> tuple[list[int], ...]:
    """Return the lines of what breaks each rule, outside functions marked ``full``."""
    found: tuple[list[int], ...] = tuple([] for _ in rules)
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        decorators = getattr(node, "decorator_list", [])
        if any("mark.full" in ast.unparse(decorator) for decorator in decorators):
            continue
        for rule, lines in zip(rules, found, strict=True):
            if rule(node):
                lines.append(getattr(node, "lineno", 0))
        waiting += ast.iter_child_nodes(node)
    for lines in found:
        lines.sort()
    return found


def called(node: ast.AST) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def is_pause(node: ast.AST) -> bool:
    """Find ``sleep`` of a time other than 0, which only lets other tasks run."""
    return (
        isinstance(node, ast.Call)
        and called(node) in ("time.sleep", "asyncio.sleep", "sleep")
        and not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)
    )


def demands_speed(node: ast.AST) -> bool:
    """Find an assertion that less real time has passed than a busy machine may need."""
    if not isinstance(node, ast.Assert):
        return False
    for compared in ast.walk(node.test):
        if not isinstance(compared, ast.Compare):
            continue
        sides = [compared.left, *compared.comparators]
        for left, operator, right in zip(sides, compared.ops, sides[1:], strict=False):
            more = right if isinstance(operator, ast.Lt | ast.LtE) else left
            less = left if more is right else right
            if isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE) and reads_clock(less):
                limit = more.value if isinstance(more, ast.Constant) else None
                if isinstance(limit, int | float) and limit < _LEAST_BOUND_S:
                    return True
    return False


def reads_clock(node: ast.AST) -> bool:
    """Tell whether an expression is a time that has passed, and not a point in time."""
    return isinstance(node, ast.BinOp) and any(called(part) in _CLOCKS for part in ast.walk(node))


def gives_up_early(node: ast.AST) -> bool:
    """Find an HTTP request with the library's own time to wait, which a busy machine may need."""
    calls = ("get", "post", "put", "delete", "request", "stream", "Client", "AsyncClient")
    return (
        isinstance(node, ast.Call)
        and called(node) in [f"httpx.{name}" for name in calls]
        and "timeout" not in [keyword.arg for keyword in node.keywords]
    )


def draws_by_chance(node: ast.AST) -> bool:
    """Find what draws without a seed, or sets anew how properties draw."""
    name = called(node)
    if name in ("random.Random", "Random"):
        return isinstance(node, ast.Call) and not node.args
    if name.endswith((".SystemRandom", ".register_profile", ".load_profile")):
        return True
    return isinstance(node, ast.keyword) and node.arg in ("derandomize", "database")


def test_no_test_decides_by_a_clock_or_by_chance_and_pauses_only_get_fewer() -> None:
    broken, more = set(), {}
    for file in gate_files():
        name = file.relative_to(TESTS).as_posix()
        rules = (demands_speed, draws_by_chance, gives_up_early, is_pause)
        *clocks, pauses = findings(file.read_text(), *rules)
        broken |= {f"{name}:{line}" for lines in clocks for line in lines}
        if len(pauses) > PAUSES.get(name, 0):
            more[name] = pauses
    assert not broken
    assert not more, "wait for a condition in place of a pause"


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (is_pause, "time.sleep(0.1)"),
        (is_pause, "await asyncio.sleep(pause_s)"),
        (demands_speed, "assert time.monotonic() - began < 30"),
        (demands_speed, "assert 0.1 < time.perf_counter() - began <= 5"),
        (demands_speed, "assert 5 > time.monotonic() - began"),
        (gives_up_early, "httpx.get(url, trust_env=False)"),
        (gives_up_early, "httpx.Client()"),
        (draws_by_chance, "random.Random()"),
        (draws_by_chance, "settings(derandomize=False)"),
        (draws_by_chance, "settings.load_profile('default')"),
    ],
)
def test_each_rule_finds_what_breaks_it(rule: Rule, code: str) -> None:
    async_code = f"async def test():\n    {code}\n"
    assert findings(async_code, rule) == ([2],)
    assert findings(f"@pytest.mark.full\n{async_code}", rule) == ([],)


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (is_pause, "asyncio.sleep(0)"),
        (demands_speed, "assert time.monotonic() - began < 100"),
        (demands_speed, "assert time.monotonic() - began > 1.0"),
        (demands_speed, "assert time.monotonic() < deadline"),
        (gives_up_early, "httpx.get(url, timeout=60)"),
        (draws_by_chance, "random.Random(714)"),
    ],
)
def test_what_is_fine_is_not_found(rule: Rule, code: str) -> None:
    assert findings(code, rule) == ([],)


@pytest.mark.skipif(exploration.SEED is not None, reason="this run explores")
def test_the_gate_explores_nothing() -> None:
    assert settings().derandomize
    assert settings().database is None
    assert settings().print_blob

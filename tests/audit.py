"""``python -m tests.audit`` checks locks for missing hashes and known vulnerabilities.

Owns what counts as an answer. A database that cannot be reached, or that knows none of the packages
(a mirror that has files alone), has said nothing: that is reported as "not checked", never as "none
found".
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_TREE: Final = Path(__file__).parents[1]
_LOCKS: Final = ("requirements.lock", "requirements-dev.lock")
#: The databases to ask, in this order: the Python packaging advisories at PyPI, then OSV, which has
#: them too.
_DATABASES: Final = ("pypi", "osv")
_TIMEOUT_S: Final = 600

_PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-\[\]]*==[^\s;]+( ;[^\\]+)?( --hash=sha256:[0-9a-f]{64})+")
_UNREACHABLE = re.compile(
    r"ConnectionError|ConnectTimeout|ReadTimeout|Timeout|ProxyError|SSLError|HTTPError|ServiceError"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of one database.

    Attributes:
        checked: Packages that it knows.
        unknown: Packages that it does not.
        vulnerabilities: A line for each that is known of a package.
    """

    checked: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    vulnerabilities: list[str] = field(default_factory=list)


def unhashed(lock: str) -> list[str]:
    """Return the requirements of a lock file that name no exact version, or no hash.

    Args:
        lock: The file's text.
    """
    lines = [line.split(" #")[0].rstrip() for line in lock.splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [line.split()[0] for line in whole.splitlines() if line and not _PIN.fullmatch(line)]


def read(report: str) -> Answer:
    """Read pip-audit's report.

    Args:
        report: Its JSON.

    Raises:
        ValueError: It is none.
    """
    answer = Answer()
    for package in json.loads(report)["dependencies"]:
        if "skip_reason" in package:
            answer.unknown.append(package["name"])
            continue
        name = f"{package['name']} {package['version']}"
        answer.checked.append(name)
        answer.vulnerabilities.extend(_line(name, known) for known in package["vulns"])
    return answer


def _line(name: str, known: dict[str, Any]) -> str:
    names = ", ".join([known["id"], *known.get("aliases", ())])
    fixed = ", ".join(known.get("fix_versions", ())) or "no version yet"
    return f"{name}: {names}; fixed in {fixed}"


def main() -> int:
    """Check the locks and report; the result is the exit status.

    Returns:
        0 where nothing was found, also where nobody could be asked; 1 for a finding; 2 where
        pip-audit failed.
    """
    bad = [f"{lock}: {name}" for lock in _LOCKS for name in unhashed((_TREE / lock).read_text())]
    for line in bad:
        _say(f"FOUND without an exact version and its hashes: {line}")
    if not bad:
        _say(f"every requirement of {' and '.join(_LOCKS)} has an exact version and its hashes")
    for database in _DATABASES:
        try:
            done = _pip_audit(database)
        except subprocess.TimeoutExpired:
            _say(f"{database}: has not answered in {_TIMEOUT_S} s")
            continue
        try:
            answer = read(done.stdout)
        except ValueError:
            if not _UNREACHABLE.search(done.stderr):
                _say(f"pip-audit failed (status {done.returncode}):\n{done.stderr[-2000:]}")
                return 2
            _say(f"{database}: can't be reached")
            continue
        if not answer.checked:
            _say(f"{database}: what answers in its place knows none of {len(answer.unknown)} packages")
            continue
        for line in answer.vulnerabilities:
            _say(f"FOUND {line}")
        _say(
            f"{database}: {len(answer.checked)} packages checked, "
            f"{len(answer.vulnerabilities)} known vulnerabilities"
        )
        if answer.unknown:
            _say(f"{database}: not checked, because it does not know them: {', '.join(answer.unknown)}")
        return 1 if bad or answer.vulnerabilities else 0
    _say("not checked: the vulnerability database can't be reached")
    return 1 if bad else 0


def _pip_audit(database: str) -> subprocess.CompletedProcess[str]:
    locks = [word for lock in _LOCKS for word in ("--requirement", str(_TREE / lock))]
    command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", database, "--format", "json"]
    command += ["--require-hashes", "--disable-pip", "--progress-spinner", "off", *locks]
    return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())

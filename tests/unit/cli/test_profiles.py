"""Which sidecars a command asks: --url, named profiles, and what is wrong with a file of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from receiver.cli.profiles import DEFAULT_URL, ProfileError, Target, profiles_file, targets
from tests.testbed.ports import free_port
from tests.unit.api.conftest import EDITOR_TOKEN, ask, token_settings
from tests.unit.cli.conftest import Run, Sidecar, served

NOTHING = Target(name="", url="")
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write the user's file of profiles."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def written(text: str) -> Path:
        file = tmp_path / "kafka-telemetry" / "profiles.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return file

    return written


def test_the_place_of_the_file() -> None:
    assert profiles_file({"XDG_CONFIG_HOME": "/etc/x"}) == Path("/etc/x/kafka-telemetry/profiles.yaml")
    home = Path("~/.config/kafka-telemetry/profiles.yaml").expanduser()
    assert profiles_file({}) == profiles_file({"XDG_CONFIG_HOME": "relative"}) == home


def test_what_is_asked_without_profiles() -> None:
    def asked(*urls: str, **environ: str) -> list[tuple[str, str]]:
        return [(target.name, target.url) for target in targets(urls, (), NOTHING, environ)]

    assert asked() == [("127.0.0.1:8642", DEFAULT_URL)]
    two = asked("http://a:1", "https://b/", "http://a:1")
    assert two == [("a:1", "http://a:1"), ("b", "https://b/")]
    assert asked(KAFKA_TELEMETRY_URL="http://c:1  http://d:1") == [
        ("c:1", "http://c:1"),
        ("d:1", "http://d:1"),
    ]
    assert asked("http://a:1", KAFKA_TELEMETRY_URL="http://c:1") == [("a:1", "http://a:1")]


def test_profiles_have_defaults_and_options_take_precedence(write: Write, tmp_path: Path) -> None:
    file = write(
        """
defaults: {token_file: ops.token, ca_file: /etc/ca.pem}
profiles:
  prod-eu: {url: "https://eu:8642"}
  prod-us: {url: "https://us:8642", token_file: us.token}
  test: {url: "http://test:8642"}
"""
    )
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "KAFKA_TELEMETRY_PROFILE": "test"}
    eu, us = targets((), ["prod-.*"], NOTHING, environ)
    assert (eu.name, eu.url, eu.token_file, eu.ca_file) == (
        "prod-eu",
        "https://eu:8642",
        file.parent / "ops.token",
        Path("/etc/ca.pem"),
    )
    assert us.token_file == file.parent / "us.token"
    (test,) = targets((), (), NOTHING, environ)
    assert test.name == "test"
    (given,) = targets((), ["prod-us"], Target(name="", url="", token_file=Path("mine")), environ)
    assert (given.token_file, given.ca_file) == (Path("mine"), Path("/etc/ca.pem"))
    assert [target.name for target in targets(["http://a"], ["test"], NOTHING, environ)] == ["a", "test"]
    assert [target.name for target in targets(["http://a"], (), NOTHING, environ)] == ["a"]


@pytest.mark.parametrize(
    ("text", "profile", "expected"),
    [
        ("profiles: {a: {url: 'eu:8642'}}", "a", 'profiles.a.url: "eu:8642": not a URL such as http://'),
        (
            "profiles: {a: {url: 'http://a', tokn_file: x}}",
            "a",
            "profiles.a.tokn_file: unknown key; did you mean",
        ),
        ("profiles: {a: {}}", "a", "profiles.a.url: required: text"),
        ("profiles: [a]", "a", "profiles: "),
        ("profiles: {a: {url: 'http://a'}, a: {url: 'http://b'}}", "a", "a: the key is given twice"),
        ("[]", "a", "expected the keys defaults and profiles"),
        ("profiles: {prod-eu: {url: 'http://a'}}", "prod-ue", "did you mean prod-eu?"),
        ("profiles: {x: {url: 'http://a'}}", "prod", "known are x"),
        ("profiles: {x: {url: 'http://a'}}", "(", "is no regular expression (RE2): "),
        ("", "prod", "has no profiles: write profiles: {prod: {url: ...}} there, or give --url"),
    ],
)
def test_what_is_wrong_with_profiles(
    write: Write, tmp_path: Path, text: str, profile: str, expected: str
) -> None:
    write(text)
    with pytest.raises(ProfileError) as error:
        targets((), [profile], NOTHING, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.full
def test_several_sidecars_are_one_list(run: Run, sidecar: Sidecar, tmp_path: Path, write: Write) -> None:
    with served(Sidecar(tmp_path / "other.db")) as other:
        write(json.dumps({"profiles": {"one": {"url": sidecar.url}, "two": {"url": other.url}}}))
        every = ("--profile", ".*")
        put = run("subscriptions", "put", "s", "-m", "*", *every)
        assert (put.exit_code, put.stdout) == (0, "one:\ns: created\ntwo:\ns: created\n")
        ask(sidecar.telemetry, 2, 1000.0, client_id="a")
        ask(other.telemetry, 3, 1000.0, client_id="b")
        listed = run("clients", "list", "-p", "one", "-p", "two")
        rows = [line.split() for line in listed.stdout.splitlines()]
        assert [(row[0], row[1]) for row in rows[1:]] == [("one", "a"), ("two", "b")]
        shown = json.loads(run("subscriptions", "list", "-o", "json", *every).stdout)
        assert [(item["cluster"], item["name"]) for item in shown] == [("one", "s"), ("two", "s")]
        documents = run("clients", "explain", ".*", "-o", "yaml", *every).stdout
        assert documents.count("cluster: ") == 2
        both = ("--url", sidecar.url, "--url", other.url)
        status = run("status", *both)
        assert [line.split()[1] for line in status.stdout.splitlines()[1:]] == ["good", "good"]
        assert status.exit_code == 0


def test_a_sidecar_that_does_not_answer_hides_no_other(run: Run, sidecar: Sidecar) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    both = ("--url", away, "--url", sidecar.url)
    run("subscriptions", "put", "s", "-m", "*", "--url", sidecar.url)
    listed = run("subscriptions", "list", *both)
    assert listed.exit_code == 1
    assert f"{away}: cannot connect" in listed.stderr
    assert listed.stdout.splitlines()[1].split()[1] == "s"
    # A change stops, so that a mistake does not reach the others.
    changed = run("subscriptions", "delete", "s", *both)
    assert changed.exit_code == 1
    assert "nothing was changed at 127.0.0.1:" in changed.stderr
    assert [kept.name for kept in sidecar.store.load_all()] == ["s"]
    status = run("status", *both)
    assert status.exit_code == 1
    assert "no answer" in status.stdout.splitlines()[1]


def test_a_profile_has_its_token(run: Run, tmp_path: Path, write: Write) -> None:
    settings = token_settings().model_dump(include={"tokens"})
    with served(Sidecar(tmp_path / "s.db", **settings)) as guarded:
        file = write(f"profiles: {{p: {{url: '{guarded.url}', token_file: t}}, q: {{url: '{guarded.url}'}}}}")
        (file.parent / "t").write_text(EDITOR_TOKEN)
        assert run("subscriptions", "list", "-p", "p").exit_code == 0
        result = run("subscriptions", "list", "-p", "[pq]")
        assert result.exit_code == 1
        assert result.stderr.splitlines()[0].startswith("kafka-telemetry: q: ")

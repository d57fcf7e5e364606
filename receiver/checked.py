"""Loads a configuration and checks all that can be checked without an effect."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from receiver.host.discovery import HostedPlugin, load_plugins
from receiver.host.ports import shared_ports
from receiver.settings.errors import SettingsError, together
from receiver.settings.kafka_options import SECRET_OPTIONS, named_files
from receiver.settings.key_file import hash_key
from receiver.settings.load import load, read_merged, sourced
from receiver.settings.model import ReceiverSettings
from receiver.store.files import read_folder
from receiver.store.folder import FolderError
from receiver.store.owners import read_owners
from receiver.telemetry.errors import InvalidValueError
from receiver.telemetry.quirks import Quirks
from spark_streaming.plain_yaml import Loc, PlainYamlError, key_text, positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A configuration that can be loaded, and what is wrong with its surroundings."""

    settings: ReceiverSettings
    plugins: Sequence[HostedPlugin]
    """The plugins that were constructed for the check."""
    mistakes: Sequence[SettingsError]
    """Files that are missing, and ports that two services share."""
    secrets: Sequence[SettingsError]
    """Secrets that stand in the configuration itself."""
    logins: Sequence[SettingsError]
    """Logins whose lack keeps the sidecar from knowing its broker."""

    @property
    def warnings(self) -> tuple[SettingsError, ...]:
        """What works and should be otherwise."""
        return (*self.secrets, *self.logins)


def load_checked(
    path: Path, environ: Mapping[str, str], *, elsewhere: bool = False
) -> tuple[ReceiverSettings, list[HostedPlugin]]:
    """Load and check a configuration file and the variables that override it.

    Args:
        elsewhere: Whether it is for another machine: plugins' files are not read.

    Returns:
        The settings, and the plugins that were constructed for the check.

    Raises:
        SettingsError: Something is wrong; the error names the file or the variable, and its
            ``further`` has all other mistakes.
    """
    errors: list[SettingsError] = []
    settings: ReceiverSettings | None = None
    plugins: list[HostedPlugin] = []
    try:
        settings = load(path, environ)
    except SettingsError as error:
        errors += [error, *error.further]
    try:
        entries = _entries(path, environ) if settings is None else settings.plugins
        plugins = load_plugins(entries, elsewhere=elsewhere)
    except SettingsError as error:
        known = {problem.loc for problem in errors}
        errors += [
            sourced(problem, path, environ) for problem in (error, *error.further) if problem.loc not in known
        ]
    if settings is not None:
        try:
            if not elsewhere:
                hash_key(settings.telemetry.privacy)
        except SettingsError as error:
            errors.append(sourced(error, path, environ))
        try:
            # Building quirks does no I/O, so it only checks their settings.
            Quirks(settings.telemetry.quirks, compression=())
        except InvalidValueError as error:
            errors.append(SettingsError(path.name, "", str(error)))
        errors += [sourced(error, path, environ) for error in shared_ports(settings, plugins)]
    if settings is None or errors:
        for problem in errors:
            problem.further = ()
        raise together(errors)
    return settings, plugins


def check_configuration(path: Path, environ: Mapping[str, str]) -> Checked:
    """Load a configuration, and also check the files and ports that it names.

    The files are looked for on this machine, and relative paths start at the working folder.

    Raises:
        SettingsError: As :func:`load_checked`.
    """
    settings, plugins = load_checked(path, environ)
    found = (*_files(settings), *_subscriptions(settings), *_owners(settings))
    mistakes = [sourced(problem, path, environ) for problem in found]
    secrets = [sourced(secret, path, environ) for secret in _inline_secrets(settings)]
    logins = [sourced(login, path, environ) for login in _missing_logins(settings)]
    return Checked(settings=settings, plugins=plugins, mistakes=mistakes, secrets=secrets, logins=logins)


def placed(error: SettingsError, path: Path, origins: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the error's line, with the place where the mistake was written.

    Args:
        path: The file. An error about it gets line and column.
        origins: Places by the keys that came from them, such as a chart's values. An error about a
            key or a part of it gets the place instead.
    """
    for length in range(len(error.loc), -1, -1):
        place = origins.get(key_text(error.loc[:length]))
        if place is not None and error.source == path.name:
            rest = key_text(error.loc[length:])
            key = f"{place}.{rest}" if rest and not rest.startswith("[") else f"{place}{rest}"
            return str(SettingsError("", key, error.problem, error.value))
    text = str(error)
    if error.source != path.name or not error.loc:
        return text
    try:
        known = positions(path.read_bytes())
    except (OSError, PlainYamlError, ValueError):
        return text
    loc = error.loc
    while loc and loc not in known:
        loc = loc[:-1]
    line, column = known.get(loc, (1, 1))
    return f"{error.source}:{line}:{column}{text.removeprefix(error.source)}"


def _entries(path: Path, environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the entries of ``plugins:`` of a configuration that is wrong elsewhere."""
    try:
        entries = read_merged(path, environ).get("plugins")
    except SettingsError:
        return []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return []
    return entries


def _mistake(loc: Loc, problem: str, value: str | None = None) -> SettingsError:
    return SettingsError("", key_text(loc), problem, value, loc)


def _files(settings: ReceiverSettings) -> Iterator[SettingsError]:
    named: list[tuple[Loc, Path]] = []
    for index, listener in enumerate(settings.listeners):
        for part in ("tls", "upstream_tls"):
            named += _paths(getattr(listener, part), ("listeners", index, part))
        if listener.broker is not settings.broker:
            named += _paths(listener.broker, ("listeners", index, "broker"))
    named += _paths(settings.broker, ("broker",))
    named += _paths(settings.rest.tls, ("rest", "tls"))
    if settings.bridge is not None:
        named += _paths(settings.bridge.token, ("bridge", "token"))
        named += _paths(settings.bridge.tls, ("bridge", "tls"))
    if settings.cluster is not None:
        named += _paths(settings.cluster.token, ("cluster", "token"))
        named += _paths(settings.cluster.tls, ("cluster", "tls"))
    if settings.rollup is not None:
        named += _paths(settings.rollup.token, ("rollup", "token"))
        named += _paths(settings.rollup.tls, ("rollup", "tls"))
    for index, token in enumerate(settings.rest.tokens):
        named += _paths(token, ("rest", "tokens", index))
    if settings.subscriptions.kafka is not None:
        files = named_files(settings.subscriptions.kafka.options)
        named += ((("subscriptions", "kafka", "options", name), Path(file)) for name, file in files)
    for loc, file in named:
        if not file.is_file():
            yield _mistake(loc, "there is no such file", f'"{file}"')
        elif not os.access(file, os.R_OK):
            yield _mistake(loc, "the file can't be read by this user", f'"{file}"')
    store = settings.subscriptions
    folders: list[tuple[Loc, Path]] = []
    if store.store != "file":
        file = store.sqlite_file if store.store == "sqlite" else store.copy_file
        folders.append((("subscriptions", "path"), file))
    if settings.gateway.control is not None:
        folders.append((("gateway", "control"), settings.gateway.control))
    for loc, file in folders:
        folder = file.absolute().parent
        if not folder.is_dir():
            yield _mistake(loc, f"there is no folder {folder}: create it", f'"{file}"')
        elif not os.access(folder, os.W_OK | os.X_OK):
            yield _mistake(loc, f"this user can't write to the folder {folder}", f'"{file}"')


def _subscriptions(settings: ReceiverSettings) -> Iterator[SettingsError]:
    """Yield the mistakes of the folder of subscriptions, each with its own place."""
    if settings.subscriptions.store != "file":
        return
    yield from _folder(("subscriptions", "path"), settings.subscriptions.folder, read_folder)


def _owners(settings: ReceiverSettings) -> Iterator[SettingsError]:
    if settings.owners.path is not None:
        yield from _folder(("owners", "path"), settings.owners.path, read_owners)


def _folder(loc: Loc, folder: Path, read: Callable[[Path], object]) -> Iterator[SettingsError]:
    try:
        read(folder)
    except FolderError as error:
        if not error.mistakes:
            yield _mistake(loc, error.problem, f'"{folder}"')
        for mistake in error.mistakes:
            yield SettingsError(str(folder), "", mistake)


def _paths(section: object, loc: Loc) -> Iterator[tuple[Loc, Path]]:
    """Yield the files that a section names, also those of its lists."""
    if isinstance(section, list | tuple):
        for index, item in enumerate(section):
            yield from _paths(item, (*loc, index))
        return
    for name in getattr(type(section), "model_fields", ()):
        value = getattr(section, name)
        if isinstance(value, Path):
            yield (*loc, name), value
        elif isinstance(value, list | tuple) or hasattr(type(value), "model_fields"):
            yield from _paths(value, (*loc, name))


def _missing_logins(settings: ReceiverSettings) -> Iterator[SettingsError]:
    """Yield the listeners whose broker is unknown and can't be asked."""
    for index, listener in enumerate(settings.listeners):
        broker = listener.broker or settings.broker
        if listener.speaks_sasl and broker.login is None and broker.id == "auto":
            problem = (
                "there is no broker.login, and a broker with SASL proves its node id only after a login. So "
                "broker_id is only likely, and in front of a broker before Kafka 4.4 no client is told that "
                "it has reached another node (KIP-1242)"
            )
            yield _mistake(("listeners", index), problem)


def _inline_secrets(settings: ReceiverSettings) -> Iterator[SettingsError]:
    if settings.subscriptions.kafka is not None:
        for name in SECRET_OPTIONS:
            if isinstance(settings.subscriptions.kafka.options.get(name), str):
                loc: Loc = ("subscriptions", "kafka", "options", name)
                yield _mistake(loc, "a secret in the configuration: put it into a file, {file: PATH}")
    for index, entry in enumerate(settings.plugins):
        for loc, value in _leaves(entry, ("plugins", index)):
            if isinstance(value, str) and str(loc[-1]).lower() in _SECRET_KEYS:
                yield _mistake(loc, "a secret in the configuration: put it into a file, {file: PATH}")


#: Keys of plugins whose text is a secret. A secret in a file is a mapping.
_SECRET_KEYS = frozenset({"password", "token", "bearer_token", "authorization", "api-key", "x-api-key"})


def _leaves(value: object, loc: Loc) -> Iterator[tuple[Loc, object]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, (*loc, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(item, (*loc, index))
    else:
        yield loc, value

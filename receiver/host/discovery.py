"""Finds plugins by entry point and constructs them from the ``plugins:`` setting.

Owns the entry-point group, the split between the host's keys and a plugin's own keys, and the error
texts. Starts nothing and opens nothing.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from receiver.host.isolation.proxy import PluginProxy
from receiver.host.redaction import Redaction
from receiver.host.settings import Delivery, HostSettings, Isolation
from receiver.plugin import ClientTelemetryReceiver, PluginConfig
from receiver.plugin.secret import FILES_ARE_ELSEWHERE
from receiver.settings.errors import SettingsError, settings_errors, together
from spark_streaming.plain_yaml import Loc, key_text
from spark_streaming.units import with_units

#: The entry-point group in which a distribution declares its plugins: ``type = "module:class"``.
ENTRY_POINT_GROUP = "kafka_client_telemetry.plugins"
#: The default parent folder of spools; each plugin's spool has the plugin's name.
SPOOLS = Path("spool")

_Settings = TypeVar("_Settings", bound=BaseModel)

_HOST_KEYS = frozenset(HostSettings.model_fields)
# An address may hold a user and a password, and a password may hold any character. So errors hide
# everything up to the last @ of a value, and of a URL in a plugin's error text.
_USERINFO_IN_VALUE = re.compile(r'("?(?:[A-Za-z][A-Za-z0-9+.-]*://)?).*@')
_USERINFO_IN_TEXT = re.compile(r"//\S*@")


class PluginConfigError(SettingsError):
    """An entry of ``plugins:`` is wrong, or its plugin is not installed.

    ``str()`` is one line: the key, such as ``plugins[0].endpoint``, the value unless it may be a
    secret, and the fix.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedPlugin:
    """A constructed plugin, not started, with the host's settings for it."""

    name: str
    type: str
    """The name of its entry point."""
    plugin: ClientTelemetryReceiver = field(repr=False)
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    settings: HostSettings = field(default_factory=HostSettings)

    @property
    def spool_path(self) -> Path | None:
        """The folder of the plugin's spool; None with ``delivery: memory``."""
        if self.settings.delivery is Delivery.MEMORY:
            return None
        return self.settings.spool.path or SPOOLS / self.name


def installed_types() -> dict[str, EntryPoint]:
    """Return the entry points of the installed plugin types, not loaded.

    Raises:
        PluginConfigError: Two distributions declare the same type.
    """
    types: dict[str, EntryPoint] = {}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        other = types.setdefault(entry.name, entry)
        # The same distribution may be on the path twice (an editable install and its build).
        if other.value != entry.value:
            raise PluginConfigError(
                "",
                "plugins",
                f"the type {entry.name} is claimed by {other.value} and {entry.value}: uninstall one",
            )
    return types


def load_plugins(
    configs: Sequence[Mapping[str, Any]],
    existing: Sequence[HostedPlugin] = (),
    *,
    elsewhere: bool = False,
) -> list[HostedPlugin]:
    """Validate ``plugins:``; construct the plugins in the same order, without a start.

    Args:
        configs: One mapping for each plugin: ``type``, the host's keys (:class:`HostSettings`) and
            the plugin's own keys (its ``Config``).
        existing: Plugins of an earlier configuration. One with the same name and entry is taken as
            it is.
        elsewhere: Whether they are for another machine: their files are not read.

    Raises:
        PluginConfigError: The first problem; its ``further`` has those of other plugins.
    """
    types = installed_types() if configs else {}
    entries, errors = [], []
    for index, config in enumerate(configs):
        try:
            entries.append(_entry(index, config, types, elsewhere=elsewhere))
        except PluginConfigError as error:
            errors.append(error)
    if errors:
        raise together(errors)
    names = _names([(entry.type_, entry.settings) for entry in entries])
    known = {plugin.name: plugin for plugin in existing}
    plugins = []
    for index, (name, entry) in enumerate(zip(names, entries, strict=True)):
        before = known.get(name)
        if before is not None and before.config == entry.config:
            plugins.append(before)
            continue
        try:
            plugins.append(_hosted(index, name, entry))
        except PluginConfigError as error:
            errors.append(error)
    if errors:
        raise together(errors)
    _check_spools(plugins)
    return plugins


def read_config(hosted: HostedPlugin) -> PluginConfig:
    """Check a plugin's own settings again, and read the secrets in files.

    Raises:
        PluginConfigError: A file can't be used.
    """
    return _validated(0, type(hosted.plugin.config), _own(hosted.config))


def _own(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plugin's own keys of an entry."""
    return {key: value for key, value in config.items() if key not in _HOST_KEYS and key != "type"}


@dataclass(frozen=True, slots=True)
class _Entry:
    """A checked entry of ``plugins:``."""

    type_: str
    config: Mapping[str, Any]
    settings: HostSettings
    plugin_class: type[ClientTelemetryReceiver]
    plugin_config: PluginConfig
    own: Mapping[str, Any]  # the plugin's own keys


def _entry(
    index: int, config: Mapping[str, Any], types: Mapping[str, EntryPoint], *, elsewhere: bool
) -> _Entry:
    type_ = config.get("type")
    if not isinstance(type_, str) or type_ not in types:
        close = difflib.get_close_matches(type_, types, n=1) if isinstance(type_, str) else []
        advice = (
            f"did you mean {close[0]}?" if close else f"installed are {', '.join(sorted(types)) or 'none'}"
        )
        raise _error(
            index,
            ("type",),
            f"unknown plugin type; {advice}",
            None if type_ is None else json.dumps(type_, default=str),
        )
    plugin_class = _plugin_class(index, types[type_])
    host = {key: value for key, value in config.items() if key in _HOST_KEYS}
    own = _own(config)
    context = FILES_ARE_ELSEWHERE if elsewhere else None
    settings, plugin_config, errors = None, None, []
    try:
        settings = _validated(index, HostSettings, host)
    except PluginConfigError as error:
        errors.append(error)
    try:
        plugin_config = _validated(index, plugin_class.Config, own, context)
    except PluginConfigError as error:
        errors.append(error)
    if settings is None or plugin_config is None:
        raise together(errors)
    return _Entry(type_, config, settings, plugin_class, plugin_config, own)


def _hosted(index: int, name: str, entry: _Entry) -> HostedPlugin:
    try:
        plugin = entry.plugin_class(entry.plugin_config)
    except Exception as error:
        text = Redaction(entry.plugin_config).exception(error)
        raise _error(
            index, ("type",), f"the plugin cannot be constructed: {text}", json.dumps(entry.type_)
        ) from None
    if entry.settings.isolation is Isolation.PROCESS:
        plugin = PluginProxy(plugin, type_=entry.type_, own=entry.own, settings=entry.settings.process)
    return HostedPlugin(
        name=name, type=entry.type_, plugin=plugin, settings=entry.settings, config=entry.config
    )


def _plugin_class(index: int, entry: EntryPoint) -> type[ClientTelemetryReceiver]:
    shown = json.dumps(entry.name)
    try:
        found = entry.load()
    except Exception as error:
        text = Redaction(None).exception(error)
        raise _error(index, ("type",), f"{entry.value} cannot be loaded: {text}", shown) from None
    if not (isinstance(found, type) and issubclass(found, ClientTelemetryReceiver)):
        raise _error(index, ("type",), f"{entry.value} is no ClientTelemetryReceiver", shown)
    base = ClientTelemetryReceiver
    if found.export is base.export and found.export_batch is base.export_batch:
        raise _error(index, ("type",), f"{entry.value} has neither export nor export_batch", shown)
    config: object = found.Config
    if not (isinstance(config, type) and issubclass(config, PluginConfig)):
        raise _error(index, ("type",), f"the Config of {entry.value} is no PluginConfig", shown)
    if reserved := sorted((_HOST_KEYS | {"type"}) & set(found.Config.model_fields)):
        raise _error(
            index,
            ("type",),
            f"the Config of {entry.value} has keys that are reserved for the host: {', '.join(reserved)}",
            shown,
        )
    return found


def _validated(
    index: int, model: type[_Settings], values: Mapping[str, Any], context: Mapping[str, str] | None = None
) -> _Settings:
    try:
        # Strictly and as JSON, like the receiver's own settings.
        return model.model_validate_json(
            json.dumps(with_units(dict(values), model), default=str), strict=True, context=context
        )
    except ValidationError as error:
        errors = settings_errors(error, model)
        raise together(
            [_error(index, mistake.loc, mistake.problem, mistake.value) for mistake in errors]
        ) from None


def _names(loaded: Sequence[tuple[str, HostSettings]]) -> list[str]:
    given: dict[str, int] = {}
    for index, (_, settings) in enumerate(loaded):
        if settings.name is None:
            continue
        if (other := given.setdefault(settings.name, index)) != index:
            raise _error(
                index,
                ("name",),
                f"plugins[{other}] has the same name: choose another",
                json.dumps(settings.name),
            )
    used = set(given)
    names = []
    for type_, settings in loaded:
        name = settings.name
        if name is None:
            name, number = type_, 2
            while name in used:
                name, number = f"{type_}-{number}", number + 1
            used.add(name)
        names.append(name)
    return names


def _check_spools(plugins: Sequence[HostedPlugin]) -> None:
    owners: dict[str, int] = {}
    for index, plugin in enumerate(plugins):
        path = plugin.spool_path
        if path is not None and (other := owners.setdefault(os.path.realpath(path), index)) != index:
            raise _error(
                index,
                ("spool", "path"),
                f"plugins[{other}] has the same folder: give each plugin its own",
                json.dumps(str(path)),
            )


def _error(index: int, loc: Loc, problem: str, value: str | None = None) -> PluginConfigError:
    shown = None if value is None else _USERINFO_IN_VALUE.sub(r"\1***@", value)
    problem = _USERINFO_IN_TEXT.sub("//***@", problem)
    loc = ("plugins", index, *loc)
    return PluginConfigError("", key_text(loc), problem, shown, loc)

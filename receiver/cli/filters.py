"""Options that filter clients and connections, as the REST API does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from receiver.cli.completion import client_field, client_instance_ids, client_states, subscription_names
from receiver.cli.session import OptionGroup
from receiver.settings.cluster import AnswerScope
from receiver.telemetry.client_state import ClientState

_PATTERN = "regular expression (RE2) for the whole"

Scope = Annotated[
    AnswerScope,
    typer.Option(help="`cluster`: ask also the other receivers that the sidecar's `cluster.members` names."),
]
Limit = Annotated[int, typer.Option(min=1, help="Most items to list.")]
Id = Annotated[
    str,
    typer.Argument(
        help="The client instance id (22 characters), the client id, or a regular expression for it.",
        metavar="ID",
        autocompletion=client_instance_ids,
    ),
]
ClientId = Annotated[
    str | None,
    typer.Option(
        help=f"Only with this client id; a {_PATTERN} of it.",
        metavar="REGEX",
        autocompletion=client_field("client_id"),
    ),
]
Software = Annotated[
    str | None,
    typer.Option(
        help=f"Only with this software; a {_PATTERN} name. librdkafka finds its bindings too.",
        metavar="REGEX",
        autocompletion=client_field("client_software_name"),
    ),
]
Version = Annotated[
    str | None,
    typer.Option(
        help=f"Only with this software version; a {_PATTERN} version, or that of the librdkafka in it.",
        metavar="REGEX",
        autocompletion=client_field("client_software_version"),
    ),
]
Principal = Annotated[
    str | None, typer.Option(help=f"Only with this principal; a {_PATTERN} of it.", metavar="REGEX")
]
Listener = Annotated[
    str | None, typer.Option(help=f"Only at this listener; a {_PATTERN} name.", metavar="REGEX")
]
Owner = Annotated[
    str | None,
    typer.Option(help=f"Only with this owner; a {_PATTERN} name. '': without an owner.", metavar="REGEX"),
]
Subscription = Annotated[
    str | None,
    typer.Option(help="Only those that this subscription matches.", autocompletion=subscription_names),
]
State = Annotated[
    str | None,
    typer.Option(help=f"Only in this state: {', '.join(ClientState)}.", autocompletion=client_states),
]
ConnectionState = Annotated[
    str | None,
    typer.Option(
        help=f"Only in this state: no_telemetry, {', '.join(ClientState)}.", autocompletion=client_states
    ),
]


@dataclass(frozen=True, kw_only=True)
class ClientFilters(OptionGroup):
    """What the lists of clients and of connections take."""

    client_id: ClientId = None
    software: Software = None
    version: Version = None
    principal: Principal = None
    listener: Listener = None
    owner: Owner = None
    subscription: Subscription = None
    scope: Scope = AnswerScope.CLUSTER

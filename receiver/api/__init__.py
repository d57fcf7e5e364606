"""The REST edge: subscriptions, clients, connections, health and metrics over HTTP.

Owns paths, JSON shapes and problem documents. It keeps no state: what it shows and changes belongs to what is
handed to :func:`create_api`.
"""

from receiver.api.app import create_api
from receiver.api.dependencies import ApiDependencies, ClientState, ClientStates
from receiver.api.server import RestServer, ServerError

__all__ = ["ApiDependencies", "ClientState", "ClientStates", "RestServer", "ServerError", "create_api"]

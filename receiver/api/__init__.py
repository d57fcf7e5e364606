"""The REST API: subscriptions, clients, connections, plugins, health, metrics.

The API keeps no state. It reads and changes the objects in :class:`ApiDependencies`.
"""

from receiver.api.app import create_api
from receiver.api.cluster import Cluster
from receiver.api.dependencies import ApiDependencies
from receiver.api.errors import ServerError
from receiver.api.events import EventLog
from receiver.api.server import RestServer
from receiver.api.sessions import Sessions

__all__ = ["ApiDependencies", "Cluster", "EventLog", "RestServer", "ServerError", "Sessions", "create_api"]

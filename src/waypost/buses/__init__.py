"""The bus: messages to all subscribers, and requests to one responder of a name."""

from waypost.buses.bus import Bus, Subscription
from waypost.buses.local import LocalBus
from waypost.buses.urls import create_bus

__all__ = ["Bus", "LocalBus", "Subscription", "create_bus"]

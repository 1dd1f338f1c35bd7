"""Who hears what: messages to everybody who listens, questions to whoever holds a name."""

from waypost.buses.bus import Bus, Subscription
from waypost.buses.local import LocalBus

__all__ = ["Bus", "LocalBus", "Subscription"]

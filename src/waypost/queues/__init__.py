"""Work that waits for somebody to do it."""

from waypost.queues.local import StoreQueue
from waypost.queues.queue import Delivery, Queue

__all__ = ["Delivery", "Queue", "StoreQueue"]

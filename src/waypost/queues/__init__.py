"""Jobs that wait for a consumer."""

from waypost.queues.local import StoreQueue
from waypost.queues.queue import Delivery, Queue

__all__ = ["Delivery", "Queue", "StoreQueue"]

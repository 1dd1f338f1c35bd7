"""Jobs that wait for a consumer."""

from waypost.queues.queue import Delivery, Queue, StoreQueue

__all__ = ["Delivery", "Queue", "StoreQueue"]

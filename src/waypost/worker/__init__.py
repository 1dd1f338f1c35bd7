"""Workers in Python: `from waypost.worker import register_worker`, for this hub and any engine of the same protocol.

A `Worker` (`worker`) has one connection (`connection`) to the engine. It answers calls of its functions (`handlers`,
`serving`, `invocations`), makes calls (`calls`), provides and uses triggers (`triggers`), observes functions
(`observing`) and hears who observes its own (`owning`), opens channels (`channels`), and publishes skills and prompts
(`publishing`). `python -m waypost.worker file.py` runs a program with `await` at its top level.
"""

from waypost.errors import InvocationFailed
from waypost.worker.answers import Answer
from waypost.worker.calls import VOID, enqueue
from waypost.worker.channels import Channel, ChannelReader, ChannelWriter, StreamChannelRef
from waypost.worker.handlers import FunctionRef
from waypost.worker.hooks import ObserveHooks, ObserveRejection
from waypost.worker.invocations import InvocationContext, current_invocation
from waypost.worker.observing import ObserverHandle
from waypost.worker.owned import Observer
from waypost.worker.pauses import Handshake, Reconnecting
from waypost.worker.registering import register_worker
from waypost.worker.triggers import Bound, TriggerType
from waypost.worker.worker import Worker

__all__ = [
    "VOID",
    "Answer",
    "Bound",
    "Channel",
    "ChannelReader",
    "ChannelWriter",
    "FunctionRef",
    "Handshake",
    "InvocationContext",
    "InvocationFailed",
    "ObserveHooks",
    "ObserveRejection",
    "Observer",
    "ObserverHandle",
    "Reconnecting",
    "StreamChannelRef",
    "TriggerType",
    "Worker",
    "current_invocation",
    "enqueue",
    "register_worker",
]

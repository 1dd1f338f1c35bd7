"""Workers in Python: `from waypost.worker import register_worker`, for this hub and any engine of the same protocol.

A `Worker` (`worker`) faces the program and may be used from any thread; its session with the engine runs in one loop on
one connection (`connection`), and publishes its skills and prompts. `functions` answers calls and provides triggers,
`invocations` makes calls, `observers` observes functions of others and handles observers of its own, and `channels`
carries streams.
`python -m waypost.worker file.py` runs a program with `await` at its top level.
"""

from waypost.errors import InvocationFailed
from waypost.worker.channels import Channel, ChannelReader, ChannelWriter, StreamChannelRef
from waypost.worker.connection import VOID, Answer, InvocationContext, Reconnecting, current_invocation, enqueue
from waypost.worker.functions import Bound, FunctionRef, TriggerType
from waypost.worker.observers import ObserveHooks, Observer, ObserveRejection, ObserverHandle
from waypost.worker.worker import Handshake, Worker, register_worker

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

"""Workers in Python: `from waypost.worker import register_worker`, for this hub and any engine of the same protocol.

A `Worker` (`worker`) faces the program and may be used from any thread; its session with the engine runs in
one loop (`loop`) on one connection (`connection`). `functions` answers calls, `invocations` makes them, `triggers`
provides and uses triggers, `observers` observes functions of others, `observed_functions` handles observers of its own,
`channels` carries streams, and `publications` publishes skills and prompts.
`python -m waypost.worker file.py` runs a program with `await` at its top level.
"""

from waypost.errors import InvocationFailed
from waypost.worker.channels import Channel, ChannelReader, ChannelWriter, StreamChannelRef
from waypost.worker.connection import Answer, Reconnecting
from waypost.worker.functions import Bound, FunctionRef, TriggerType
from waypost.worker.invocations import VOID, InvocationContext, current_invocation, enqueue
from waypost.worker.observers import ObserveHooks, Observer, ObserveRejection, ObserverHandle
from waypost.worker.publications import Handshake
from waypost.worker.worker import Worker, register_worker

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

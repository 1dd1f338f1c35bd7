"""Workers: programs that connect over a WebSocket, offer functions, and call those of others and of the hub.

A socket (`sockets`, `port`) carries messages (`frames`) of one worker (`worker`); `desk` holds them until the worker
has said its name, and sorts them: functions go to the table (`functions`) and from there into the registry (`offers`),
or wait while another worker offers them (`claims`); bindings go to `triggers`, calls to `calling`, which runs
everything through the pipeline. What the hub itself offers to workers (`builtins`, `state`, `channels`, and what other
rooms provide) stands in the same table.
"""

"""Workers: programs that connect over a WebSocket, offer functions, and call those of others and of the hub.

A socket (`sockets`, `port`) carries messages (`frames`) of one worker (`worker`); `introductions` holds them until the
worker has said its name. `desk` sorts them: functions go to the table (`functions`) and from there into the registry
(`offers`), bindings to `triggers`, calls to `calling`, which runs everything through the pipeline. What the hub itself
offers to workers (`builtins`, `state`, `channels`, and what other rooms provide) stands in the same table.
"""

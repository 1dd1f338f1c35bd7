"""Streamable HTTP as a plain ASGI app.

`app` routes; `gate` refuses foreign hosts, bad keys, and oversized or ill-typed requests; `endpoint` hands messages to
their era; `reply` sends JSON, or a stream of events from the first message that comes before the response. `server`
runs the app on uvicorn, with the shortcuts of `fast_uvicorn` where they are possible.
"""

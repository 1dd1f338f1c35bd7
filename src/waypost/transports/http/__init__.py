"""Streamable HTTP as a plain ASGI app.

`app` routes; `gate` refuses strangers and oversized or ill-typed requests; `endpoint` hands messages to the era they
belong to; `reply` answers as JSON, or as a stream of events from the first message that comes before the answer.
"""

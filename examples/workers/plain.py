"""A worker in a program without an event loop: it runs in its own thread."""

from waypost.worker import register_worker

iii = register_worker(name="plain")


@iii.register_function("plain::shout")
def shout(payload: dict[str, str]) -> str:
    return payload["text"].upper()


print(iii.trigger("plain::shout", {"text": "hello"}).result())
iii.shutdown().result()

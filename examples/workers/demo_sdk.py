"""The same worker on the `iii-sdk` of PyPI, unchanged: `pip install iii-sdk`, then `python demo_sdk.py`."""

import signal
from contextlib import suppress
from typing import Any

from iii import InitOptions, register_worker


async def guide(data: Any) -> dict[str, str]:
    return {"content": "# Demo guide\n\nThe long-form docs for the demo worker."}


async def greet_prompt(data: Any) -> dict[str, str]:
    return {"content": f"Greet {data.get('name', 'world')} warmly."}


def main() -> None:
    iii = register_worker(options=InitOptions(worker_name="demo"))
    iii.register_function("demo::guide", guide, description="Detailed guide for the demo worker.")
    iii.register_function("demo::greet_prompt", greet_prompt, description="Render the greet prompt.")
    iii.trigger(
        {
            "function_id": "skills::register",
            "payload": {
                "id": "demo",
                "skill": "# demo\n\nA demo worker.\n\nSee [`guide`](iii://fn/demo/guide) for the long version.\n",
            },
        }
    )
    iii.trigger(
        {
            "function_id": "prompts::register",
            "payload": {
                "name": "greet",
                "description": "Compose a greeting.",
                "arguments": [{"name": "name", "description": "Who to greet", "required": True}],
                "function_id": "demo::greet_prompt",
            },
        }
    )
    print("demo is ready", flush=True)
    with suppress(KeyboardInterrupt):
        signal.pause()
    iii.shutdown()


if __name__ == "__main__":
    main()

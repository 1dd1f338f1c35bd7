"""A worker with a function, a skill and a slash command, on `waypost.worker`.

Run it beside a hub: `python demo.py`. It connects to `III_URL`, or to ws://127.0.0.1:49134.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from waypost.worker import register_worker


@dataclass
class Greeting:
    name: str = "world"


async def main() -> None:
    iii = register_worker(name="demo")

    @iii.register_function("demo::guide")
    async def guide() -> dict[str, str]:
        """Detailed guide for the demo worker."""
        return {"content": "# Demo guide\n\nThe long-form docs for the demo worker."}

    @iii.register_function("demo::greet_prompt")
    def greet_prompt(greeting: Greeting) -> dict[str, str]:
        """Render the greet prompt."""
        return {"content": f"Greet {greeting.name} warmly."}

    await iii.publish_skill(
        "demo",
        "# demo\n\nA demo worker.\n\nSee [`guide`](iii://fn/demo/guide) for the long version.\n",
    )
    await iii.publish_prompt(
        "greet",
        "Compose a greeting.",
        [{"name": "name", "description": "Who to greet", "required": True}],
        function_id="demo::greet_prompt",
    )
    print("demo is ready", flush=True)
    await iii.closed()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())

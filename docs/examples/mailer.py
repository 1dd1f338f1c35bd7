"""A worker that documents itself: a tree of skills, a live page, and a slash command."""

import asyncio
from contextlib import suppress

from waypost.worker import register_worker

ROUTER = """\
# resend

Sends email and reports its delivery.

- [`email`](iii://resend/email): how to send one, or many
- [`health`](iii://fn/resend/health): whether it works right now
"""
EMAIL = """\
# Sending email

Call `resend__send` once for each recipient.
"""


async def main() -> None:
    iii = register_worker(name="mailer")

    @iii.register_function("resend::health")
    async def health() -> dict[str, str]:
        """Whether email can be sent."""
        return {"content": "# Health\n\nEmail can be sent."}

    @iii.register_function("resend::draft")
    async def draft(arguments: dict[str, str]) -> str:
        """Write the slash command send-email."""
        return f"Write an email to {arguments['to']} about {arguments.get('subject', 'anything')}."

    await iii.publish_skill("resend/email", EMAIL)
    await iii.publish_skill("resend", ROUTER)
    await iii.publish_prompt(
        "send-email",
        "Write an email.",
        [{"name": "to", "description": "The recipient", "required": True}, {"name": "subject"}],
        function_id="resend::draft",
    )
    print("mailer is ready", flush=True)
    await iii.closed()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())

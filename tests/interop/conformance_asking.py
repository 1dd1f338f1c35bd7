"""The tools of the conformance server that ask the client something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tests.interop.conformance_forms import CHOICES_FORM, CONFIRMATION, DEFAULTS_FORM, described, form
from waypost import Context


async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model."""
    answer = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {answer.text}"


async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the person behind the client two things."""
    answer = await ctx.elicit(message, form("username", "email"))
    return f"User response: {described(answer)}"


async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with a form that is filled in already."""
    answer = await ctx.elicit("Please review the defaults.", DEFAULTS_FORM)
    return f"Elicitation completed: {described(answer)}"


async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask with every kind of choice."""
    answer = await ctx.elicit("Please choose.", CHOICES_FORM)
    return f"Elicitation completed: {described(answer)}"


async def test_missing_capability(ctx: Context) -> str:
    """Need a client whose model can be asked."""
    return (await ctx.sample("Say anything.", max_tokens=10)).text


async def test_streaming_elicitation(ctx: Context) -> str:
    """Ask in the middle of a call that streams."""
    await ctx.log("info", "About to ask")
    answer = await ctx.elicit("Please confirm.", CONFIRMATION, key="confirmation")
    return described(answer)


async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask for a name."""
    answer = await ctx.elicit("What is your name?", form("name"), key="user_name")
    return f"Hello, {described(answer)}!"


async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's model."""
    return (await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")).text


async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask where the client works."""
    return ", ".join(root.uri for root in await ctx.roots(key="client_roots"))


async def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask, and remember something until the answer is there."""
    started = await ctx.once("started", lambda: "state-ok")
    answer = await ctx.elicit("Please confirm.", CONFIRMATION, key="confirm")
    return f"{started}: {described(answer)}"


async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask three things at once."""
    name, greeting, roots = await asyncio.gather(
        ctx.elicit("What is your name?", form("name"), key="user_name"),
        ctx.sample("Write a greeting.", max_tokens=50, key="greeting"),
        ctx.roots(key="client_roots"),
    )
    return f"{greeting.text} {described(name)} works in {len(roots)} places."


async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask one thing after the other."""
    name = await ctx.elicit("Step 1: what is your name?", form("name"), key="step1")
    color = await ctx.elicit("Step 2: what is your favorite color?", form("color"), key="step2")
    return f"{described(name)} likes {described(color)}."


async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask; whoever alters the state on the way back is refused."""
    return described(await ctx.elicit("Please confirm.", CONFIRMATION, key="confirm"))


async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask whatever the client can answer."""
    asked: list[Awaitable[Any]] = []
    if "sampling" in ctx.session.client_capabilities:
        asked.append(ctx.sample("Write a greeting.", max_tokens=50, key="greeting"))
    if "elicitation" in ctx.session.client_capabilities:
        asked.append(ctx.elicit("What is your name?", form("name"), key="user_name"))
    return f"{len(await asyncio.gather(*asked))} answers."


ASKING: Final[tuple[Callable[..., Awaitable[str]], ...]] = (
    test_sampling,
    test_elicitation,
    test_elicitation_sep1034_defaults,
    test_elicitation_sep1330_enums,
    test_missing_capability,
    test_streaming_elicitation,
    test_input_required_result_elicitation,
    test_input_required_result_sampling,
    test_input_required_result_list_roots,
    test_input_required_result_request_state,
    test_input_required_result_multiple_inputs,
    test_input_required_result_multi_round,
    test_input_required_result_tampered_state,
    test_input_required_result_capabilities,
)

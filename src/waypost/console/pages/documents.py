"""Documents and prompts: what agents read, rendered."""

from __future__ import annotations

from typing import Any, Final

from waypost.console.markdown import render_markdown
from waypost.console.page import Done, Page, Refused, View, segment

MAX_ROWS: Final = 60


async def load(view: View) -> dict[str, Any]:
    """Documents and prompts whose names contain the text in the URL, and one document if the URL names it."""
    text, shown = view.query.get("q", "").strip().lower(), view.query.get("id", "")
    try:
        documents = (await view.api.get("documents"))["documents"]
    except Refused as error:  # a hub may be configured without documents
        if error.status != 400:
            raise
        documents = []
    prompts = (await view.api.get("prompts"))["prompts"]
    documents = [one for one in documents if text in one["id"].lower()]
    prompts = [one for one in prompts if text in one["name"].lower()]
    document = (await view.api.get("document", id=shown)) if shown else None
    return {
        "documents": documents[:MAX_ROWS],
        "prompts": prompts[:MAX_ROWS],
        "counts": (len(documents), len(prompts)),
        "document": document,
        "rendered": None if document is None else render_markdown(document["skill"]),
        "text": text,
    }


async def create(view: View) -> Done:
    """Publish a document."""
    body = {"id": view.form.get("id", "").strip(), "skill": view.form.get("skill", "")}
    document = (await view.api.post("documents", body))["document"]
    notes = "".join(f" Note: {one}." for one in document.get("warnings", ()))
    return Done(f"{document['id']} is published.{notes}")


async def remove(view: View) -> Done:
    """Remove a document or a prompt that was published."""
    if name := view.form.get("prompt"):
        await view.api.delete(f"prompts/{segment(name)}")
        return Done(f"The prompt {name} is removed.")
    gone = (await view.api.delete("documents", id=view.form.get("id", "")))["document"]["id"]
    view.query = {name: value for name, value in view.query.items() if name != "id"}
    return Done(f"The document {gone} is removed.")


PAGE: Final = Page(
    "documents",
    "Documents",
    "documents.html",
    load,
    {"create": create, "remove": remove},
    section="Sources",
    icon="documents",
    shortcut="d",
    live=("documents", "prompts", "resources"),
)

"""The schemas of the thirteen functions and the two kinds of trigger, as workers know them."""

from __future__ import annotations

from typing import Any, Final

from waypost.skills.content.ports import Data

_DRAFT: Final = {"$schema": "http://json-schema.org/draft-07/schema#"}
_TEXT: Final = {"type": "string"}
_COUNT: Final = {"format": "uint", "minimum": 0, "type": "integer"}


def _told(text: str, **schema: Any) -> Data:
    return {"description": text, **(schema or _TEXT)}


def _object(title: str, properties: Data | None = None, required: tuple[str, ...] = (), **more: Any) -> Data:
    schema: Data = {**_DRAFT, **more, "title": title, "type": "object"}
    if properties is not None:
        schema["properties"] = properties
    if required:
        schema["required"] = list(required)
    return schema


def _listing(title: str, noun: str, row: str, properties: Data) -> Data:
    rows = {"items": {"$ref": f"#/definitions/{row}"}, "type": "array"}
    definition = {"properties": properties, "required": sorted(properties), "type": "object"}
    return _object(title, {noun: rows}, (noun,), definitions={row: definition})


EMPTY: Final = _object("EmptyInput")
ANY: Final[Data] = {**_DRAFT, "title": "AnyValue"}

REGISTER_SKILL: Final = _object(
    "RegisterSkillInput",
    {
        "id": _told("Unique skill id (lowercase ASCII, kebab/underscore, max 64 chars)."),
        "skill": _told("Markdown body served at iii://{id}."),
    },
    ("id", "skill"),
)
SKILL_REGISTERED: Final = _object("RegisterSkillOutput", {"id": _TEXT, "registered_at": _TEXT}, ("id", "registered_at"))
UNREGISTER_SKILL: Final = _object("UnregisterSkillInput", {"id": _TEXT}, ("id",))
SKILL_UNREGISTERED: Final = _object(
    "UnregisterSkillOutput", {"id": _TEXT, "removed": {"type": "boolean"}}, ("id", "removed")
)
LIST_SKILLS: Final = _object("ListSkillsInput")
SKILLS: Final = _listing(
    "ListSkillsOutput", "skills", "SkillEntry", {"bytes": _COUNT, "id": _TEXT, "registered_at": _TEXT}
)
READ: Final = _object("ReadResourceInput", {"uri": _TEXT}, ("uri",))
FETCH: Final = _object(
    "FetchSkillInput",
    {
        "uri": _told('A single iii:// URI to read. Must start with "iii://".', default=None, type=["string", "null"]),
        "uris": _told(
            "Multiple iii:// URIs to read and concatenate into one response.",
            default=None,
            items=_TEXT,
            type=["array", "null"],
        ),
    },
)
FETCHED: Final[Data] = {**_DRAFT, "title": "String", "type": "string"}

REGISTER_PROMPT: Final = _object(
    "RegisterPromptInput",
    {
        "arguments": {"default": [], "items": {"$ref": "#/definitions/PromptArgument"}, "type": "array"},
        "description": _told("Free-text description shown in the client's prompt picker."),
        "function_id": _told("Handler function called on prompts/get with the supplied arguments."),
        "name": _told("Unique prompt name (lowercase ASCII, kebab/underscore, max 64 chars)."),
    },
    ("description", "function_id", "name"),
    definitions={
        "PromptArgument": {
            "properties": {
                "description": {"type": ["string", "null"]},
                "name": _TEXT,
                "required": {"default": False, "type": "boolean"},
            },
            "required": ["name"],
            "type": "object",
        }
    },
)
PROMPT_REGISTERED: Final = _object(
    "RegisterPromptOutput", {"name": _TEXT, "registered_at": _TEXT}, ("name", "registered_at")
)
UNREGISTER_PROMPT: Final = _object("UnregisterPromptInput", {"name": _TEXT}, ("name",))
PROMPT_UNREGISTERED: Final = _object(
    "UnregisterPromptOutput", {"name": _TEXT, "removed": {"type": "boolean"}}, ("name", "removed")
)
LIST_PROMPTS: Final = _object("ListPromptsInput")
PROMPTS: Final = _listing(
    "ListPromptsOutput",
    "prompts",
    "PromptEntry",
    {"arguments": _COUNT, "function_id": _TEXT, "name": _TEXT, "registered_at": _TEXT},
)
GET_PROMPT: Final = _object("PromptGetInput", {"arguments": {"default": None}, "name": _TEXT}, ("name",))

"""Definitions of tools, resources, prompts and skills, and the name of a client or server."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from waypost.wire.content import Annotations

Schema: TypeAlias = dict[str, Any]
Meta: TypeAlias = dict[str, Any]


class ToolAnnotations(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """Hints about what a tool does to the world; clients must not rely on them."""

    title: str | UnsetType = UNSET
    read_only_hint: bool | UnsetType = UNSET
    destructive_hint: bool | UnsetType = UNSET
    idempotent_hint: bool | UnsetType = UNSET
    open_world_hint: bool | UnsetType = UNSET


class Icon(msgspec.Struct, rename="camel"):
    """A picture that clients may show."""

    src: str
    mime_type: str | UnsetType = UNSET
    sizes: list[str] | UnsetType = UNSET
    theme: Literal["light", "dark"] | UnsetType = UNSET


class ToolExecution(msgspec.Struct, rename="camel"):
    """Whether a tool may run as a task."""

    task_support: str


class ToolDefinition(msgspec.Struct, rename="camel", omit_defaults=True):
    """A tool as `tools/list` shows it."""

    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    input_schema: Schema = msgspec.field(default_factory=lambda: {"type": "object"})
    output_schema: Schema | UnsetType = UNSET
    annotations: dict[str, Any] | UnsetType = UNSET
    icons: list[Any] | UnsetType = UNSET
    execution: ToolExecution | UnsetType = UNSET
    meta: Meta | UnsetType = msgspec.field(default=UNSET, name="_meta")


class ResourceDefinition(msgspec.Struct, rename="camel", omit_defaults=True):
    """A resource as `resources/list` shows it."""

    uri: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    size: int | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    icons: list[Any] | UnsetType = UNSET
    meta: Meta | UnsetType = msgspec.field(default=UNSET, name="_meta")


class TemplateDefinition(msgspec.Struct, rename="camel", omit_defaults=True):
    """A resource template as `resources/templates/list` shows it."""

    uri_template: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    icons: list[Any] | UnsetType = UNSET
    meta: Meta | UnsetType = msgspec.field(default=UNSET, name="_meta")


class PromptArgument(msgspec.Struct, omit_defaults=True):
    """One argument of a prompt."""

    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    required: bool | UnsetType = UNSET


class PromptDefinition(msgspec.Struct, omit_defaults=True):
    """A prompt as `prompts/list` shows it."""

    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    arguments: list[PromptArgument] | UnsetType = UNSET
    icons: list[Any] | UnsetType = UNSET
    meta: Meta | UnsetType = msgspec.field(default=UNSET, name="_meta")


Definition: TypeAlias = ToolDefinition | ResourceDefinition | TemplateDefinition | PromptDefinition


class Implementation(msgspec.Struct, rename="camel", omit_defaults=True):
    """The name and version of a client or server."""

    name: str
    version: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    website_url: str | UnsetType = UNSET
    icons: list[Any] | UnsetType = UNSET


DIRECTORY: Final = "inode/directory"
"""The MIME type of a directory."""


class SkillFile(msgspec.Struct, frozen=True):
    """One file of a skill: its digest and size are those of the bytes that a read gives."""

    uri: str
    digest: str
    size: int


class SkillEntry(msgspec.Struct, frozen=True):
    """A skill: the URI of its SKILL.md, that file's front matter as it stands there, and all of its files."""

    uri: str
    frontmatter: dict[str, Any]
    resources: list[SkillFile]

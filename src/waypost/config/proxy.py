"""What of the connections and capabilities agents may use directly, and how they find it."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from waypost.config.names import Name
from waypost.config.workflows import Reliability, Schema
from waypost.kinds import ExecutorModel, GuardModel

ItemName = Annotated[
    str,
    Meta(
        pattern=r"^[a-zA-Z][a-zA-Z0-9_.-]*$",
        max_length=128,
        description="Letters, digits, `_`, `.` and `-`, a letter first.",
        extra={"form": "letters, digits, `_`, `.` and `-`, a letter first"},
    ),
]


class Expose(Struct, frozen=True, kw_only=True, rename="camel"):
    """A capability that agents may use: written here, or one of `capabilities` under a name."""

    name: Annotated[ItemName | None, Meta(description="Its name, where it is written here.")] = None
    capability: Annotated[Name | None, Meta(description="An entry of `capabilities`.")] = None
    as_: Annotated[ItemName | None, Meta(description="The name the entry gets; left out, its own.")] = field(
        name="as", default=None
    )
    title: Annotated[str | None, Meta(description="The name shown to people and agents.")] = None
    description: Annotated[str | None, Meta(description="What it does.")] = None
    tags: Annotated[list[str], Meta(description="Labels.")] = []
    aliases: Annotated[list[str], Meta(description="Other words to find it by.")] = []
    examples: Annotated[list[Any], Meta(description="Examples of its arguments.")] = []
    category: Annotated[str | None, Meta(description="The category it is counted under.")] = None
    input_schema: Annotated[Schema | None, Meta(description="The JSON Schema of its arguments.")] = None
    guards: Annotated[list[GuardModel], Meta(description="What has to hold, all of it.")] = []
    executor: Annotated[ExecutorModel | None, Meta(description="What it runs.")] = None
    reliability: Annotated[Reliability | None, Meta(description="What is done about failures.")] = None


class Import(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a connection offers, taken over under a prefix."""

    connection: Annotated[Name, Meta(description="A connection of the kind `mcp` or `rest`.")]
    prefix: Annotated[ItemName | None, Meta(description="What their names begin with; left out, the connection's.")] = (
        None
    )
    include: Annotated[
        list[Name], Meta(description="Only these tools and prompts, by their exact names; left out, all.")
    ] = []
    exclude: Annotated[list[Name], Meta(description="Not these.")] = []
    tags: Annotated[list[str], Meta(description="Labels for all of them.")] = []
    trust: Annotated[
        Literal["quarantine", "flag", "off"],
        Meta(description="What becomes of a definition that changed: held back, only marked, or nothing."),
    ] = "quarantine"


class Proxy(Struct, frozen=True, kw_only=True, rename="camel"):
    """What agents may use directly."""

    expose: Annotated[list[Expose], Meta(description="Capabilities, one by one.")] = []
    imports: Annotated[list[Import], Meta(description="Whole connections.")] = field(name="import", default=[])


class Search(Struct, frozen=True, kw_only=True, rename="camel"):
    """How `gateway.search` ranks."""

    ranking: Annotated[
        Literal["auto", "weighted", "hybrid"],
        Meta(description="By fields, by words and meaning, or by the length of the query."),
    ] = "auto"

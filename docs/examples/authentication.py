from waypost import Context, Hub
from waypost.identity import Authentication, Key

auth = Authentication(
    keys=[
        Key(
            "ci",
            "sha256:6ccc2aa48bc1f67fb0d063cf95ea1dda36fadefd70ee106f053294182b9384cb",
            scopes=("notes:read", "notes:write"),
        ),
    ],
    anonymous=False,
)
hub = Hub("notes", version="1.0.0", auth=auth)
notes: list[str] = []


@hub.tool(scopes=["notes:write"])
async def write(text: str, ctx: Context) -> str:
    """Write a note."""
    notes.append(f"{ctx.principal.id}: {text}")
    return "Written."


@hub.tool
async def whoami(ctx: Context) -> str:
    """Say who is calling."""
    return ctx.principal.id

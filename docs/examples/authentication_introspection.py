import os

from waypost import Context, Hub
from waypost.identity import Authentication, Introspection, OAuthSettings

oauth = OAuthSettings(
    issuer="https://login.example.com/",
    resource="https://hub.example.com/mcp",
    introspection=Introspection(
        endpoint="https://login.example.com/introspect",
        client_id="hub",
        client_secret=os.environ.get("HUB_SECRET", ""),
        remember=10.0,
    ),
)
hub = Hub("notes", version="1.0.0", auth=Authentication(oauth=oauth))


@hub.tool
async def whoami(ctx: Context) -> str:
    """Say who is calling."""
    return ctx.principal.id

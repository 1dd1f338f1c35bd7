from waypost import Context, Hub
from waypost.identity import Authentication, Grants, OAuthSettings

oauth = OAuthSettings(
    issuer="https://login.example.com/",
    resource="https://hub.example.com/mcp",
    jwks="https://login.example.com/.well-known/jwks.json",
    scopes=("notes:read", "notes:write"),
    grants=Grants(roles=("agent",), implied={"notes:write": ["notes:read"]}),
)
hub = Hub("notes", version="1.0.0", auth=Authentication(oauth=oauth), allowed_hosts=["hub.example.com"])


@hub.tool(scopes=["notes:read"])
async def read(ctx: Context) -> str:
    """Read the notes."""
    return f"Nothing yet, {ctx.principal.id}."

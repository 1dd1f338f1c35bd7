"""HTTP APIs by their OpenAPI documents: each operation is something agents may use."""

from waypost.gateway.openapi.importing import Imported, imported

__all__ = ["Imported", "imported"]

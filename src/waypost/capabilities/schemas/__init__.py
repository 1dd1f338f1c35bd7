"""Schemas: how capabilities say what they take and give, and how values are held to it."""

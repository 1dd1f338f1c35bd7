"""Capabilities (tools, prompts, resources), the registry that holds them, and the ways to define them."""

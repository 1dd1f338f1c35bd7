"""Imports: capabilities of upstream servers and APIs as rows of the registry."""

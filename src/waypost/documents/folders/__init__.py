"""Folders of skills and prompts, read and followed."""

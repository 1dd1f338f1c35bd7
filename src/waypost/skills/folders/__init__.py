"""Folders of skills in the Agent Skills format, and folders of prompts."""

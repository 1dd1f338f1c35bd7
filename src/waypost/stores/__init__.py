"""Durable state: the ports and their engines."""

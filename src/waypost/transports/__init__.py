"""Bytes in, bytes out: HTTP, standard streams and memory."""

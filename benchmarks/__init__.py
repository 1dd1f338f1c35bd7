"""Waypost beside its peers: one run, interleaved rounds, ratios against the targets."""

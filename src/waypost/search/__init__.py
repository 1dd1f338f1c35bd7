"""Search over the catalog: an index and its rankings."""

"""One door to everything: the catalog, the search over it, and the seven tools that agents see."""

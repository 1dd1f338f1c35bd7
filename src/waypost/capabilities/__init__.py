"""What agents can reach: capabilities, the registry that holds them, and the ways to write them."""

"""What runs a declared hub: the core, the components and their one lifecycle."""

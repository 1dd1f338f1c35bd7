"""Documents: markdown skills and prompts, published by workers and people or read from folders."""

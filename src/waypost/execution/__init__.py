"""Running capabilities: the one pipeline every call goes through, its deadlines and its threads."""

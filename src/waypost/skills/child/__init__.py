"""The program a dynamic skill runs in, a process of its own; of the hub it loads nothing but this folder."""

"""The program that a dynamic skill's process runs; of the hub it loads nothing but this folder."""

"""A folder that is put on the path of a program that is recorded: Python runs `sitecustomize` in it."""

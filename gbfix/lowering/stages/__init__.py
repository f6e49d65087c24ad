"""Functions whose outline stays in Python, and the stages in them that are compiled on their own."""

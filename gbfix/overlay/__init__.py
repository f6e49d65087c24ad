"""Runs a program on rewritten source that is kept in memory and never written to its files."""

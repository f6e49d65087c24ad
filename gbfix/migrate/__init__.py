"""Migrates a whole codebase: plans, verifies, writes with a journal, and says how it went."""

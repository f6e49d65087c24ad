"""Blocks of code that select rows with a mask, rewritten without selecting."""

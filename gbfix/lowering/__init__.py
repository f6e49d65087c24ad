"""Branches taken apart for rewriting: arms, outputs, aliases. Shared by the branch transforms."""

"""Stands in for absl-py."""

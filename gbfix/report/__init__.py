"""What a run found, as text for people and JSON for programs. Knows nothing of how it was found."""

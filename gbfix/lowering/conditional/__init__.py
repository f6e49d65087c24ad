"""In-place updates under a condition that is a tensor: each is computed, and stored where it holds."""

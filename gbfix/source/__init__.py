"""Files as text: find them, decode them, edit them by offset, write them atomically."""

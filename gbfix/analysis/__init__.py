"""What the code means: names, kinds, regions, effects and break sites. Knows nothing of rewriting."""

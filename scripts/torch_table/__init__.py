"""The parts of the generator of gbfix/analysis/data/torch_table.json."""

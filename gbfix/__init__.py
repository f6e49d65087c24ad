"""gbfix finds torch.compile graph breaks in PyTorch source and rewrites them."""

__version__ = "0.1.0"

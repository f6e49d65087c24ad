"""All contact with `torch._dynamo`; importing the package itself does not import torch."""

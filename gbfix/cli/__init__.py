"""The command line: parsing and printing only. Knows nothing of how breaks are found or fixed."""

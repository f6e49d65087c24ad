"""What editors ask for: code actions for a place, and a language server. Knows no transform."""

"""New code as text: pieces of the source, predicates, names, statements laid out. Knows no fixes."""

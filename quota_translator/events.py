"""Events on the tree's nodes."""

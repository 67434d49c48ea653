"""Leading, and standing by."""

"""The documentation, and the generator of its generated part."""

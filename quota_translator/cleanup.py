"""`quota-translator cleanup`."""

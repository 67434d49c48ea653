"""quota-translator: a tree of accelerator quotas, translated into Kueue objects."""

__version__ = "0.1.0"

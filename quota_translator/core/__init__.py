"""The pure core: values in, values out.

Nothing below this package reads a clock or the environment, logs, or does I/O. It may import the
standard library, pydantic and msgspec, and nothing else of the project (import-linter checks it).
"""

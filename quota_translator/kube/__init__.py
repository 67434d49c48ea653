"""The only place that knows HTTP: the API server as a `core.ports.Cluster`."""

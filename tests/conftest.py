"""What all tests share."""

from hypothesis import HealthCheck, settings

# No deadlines: a test must not fail because the machine was busy.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("default")

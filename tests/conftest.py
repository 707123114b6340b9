"""What every test shares."""

from hypothesis import HealthCheck, settings

# Two busy cores: no test asserts a time, and slow data generation is not a fault.
settings.register_profile(
    "penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("penstock")

pytest_plugins = ["tests.servers.fixtures"]

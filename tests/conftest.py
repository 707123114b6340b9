"""What every test shares."""

from hypothesis import HealthCheck, settings

from penstock.api.grpc.polling import wait_on_a_condition

# Two busy cores: no test asserts a time, and slow data generation is not a fault.
settings.register_profile(
    "penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("penstock")

wait_on_a_condition()  # gRPC, which no test has imported yet, waits here as it does in `serve`

pytest_plugins = ["tests.servers.fixtures"]

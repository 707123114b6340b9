"""The scheduler service: events by gRPC or Kafka, published to the topic each names."""

EVENTS = "events"
"""The route of its events; a server without it does not serve scheduler.v1."""

"""The scheduler service: events by gRPC or Kafka, published to the topic each names."""

EVENTS = "events"
"""The route that its events take; a server without it does not answer scheduler.v1."""

"""The tick service: `POST /ticks`, and at its moment a Kafka message for each."""

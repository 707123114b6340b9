"""The sentences of `penstock.ports.store` as tests, by theme; `store_suite` combines them."""

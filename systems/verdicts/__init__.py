"""One module per system: `verdict(reports)`, and optionally `drained(system)`."""

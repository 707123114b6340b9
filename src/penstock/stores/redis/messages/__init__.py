"""Messages: put, lease, settle, change, look up; each script beside the step that calls it."""

"""What the systems that Penstock replaces had of their own: their calls, formats and clients."""

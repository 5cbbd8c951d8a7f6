"""A page on which people confirm or reject suggested labels: what to ask, what was answered, the server."""

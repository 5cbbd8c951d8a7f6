"""Review: a page on which people confirm or reject suggested labels."""

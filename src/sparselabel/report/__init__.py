"""The report of one or more runs: a single HTML file that opens without network or server."""

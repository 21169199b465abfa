"""Two clients, blocking and asynchronous, over the same protocol: each sends a request and returns its response."""

"""Clients that send one request and return one response: two thin twins over the same protocol."""

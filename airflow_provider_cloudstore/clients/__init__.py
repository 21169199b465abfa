"""Clients that send one request and return one response, thin twins over the same protocol."""

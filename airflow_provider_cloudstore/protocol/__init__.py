"""The service's API as values and decisions, which both clients share: no socket, no clock, no sleep."""

"""Very many remote uploads in one task, streamed from a manifest, sent concurrently and resumed after a failure."""

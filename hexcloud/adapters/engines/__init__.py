"""Inference engines behind one HTTP API, that of SGLang: its client, and a small engine of our own for CPUs."""

"""hexcloud buys the cheapest mix of cloud GPUs that keeps an asynchronous RL run at its target throughput."""

__version__ = "0.1.0"

"""What benchmarks measure on: markets at full size."""

"""Timings of this machine: `make bench`, or `python -m benchmarks NAME …` for some of them."""

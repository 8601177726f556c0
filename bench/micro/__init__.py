"""Micro-benchmarks of the machine: latencies and rates that the predictor's tables rest on."""

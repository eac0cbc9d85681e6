"""The workloads that come with pergrad, one file each; `harness.core.find_workloads` says what is in such a file."""

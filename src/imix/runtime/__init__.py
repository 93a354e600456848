"""The runtime: device, random numbers, CUDA graphs, distributed training, signals and GPU kernels."""

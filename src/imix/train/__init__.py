"""Training: the loop, its schedule, checkpoints and logs, and `pretrain`, which puts them together."""

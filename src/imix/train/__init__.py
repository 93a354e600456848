"""Training: setup, views, the step, the loop around it, schedule, logs and health checks; pretrain() and bench()."""

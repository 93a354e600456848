"""Training: what is made of settings, a step, the loop around it, its schedule, checkpoints and logs."""

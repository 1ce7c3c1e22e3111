"""What the commands do beyond one training."""

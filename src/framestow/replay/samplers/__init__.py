"""Which slots a batch is drawn from. Samplers see slots only."""

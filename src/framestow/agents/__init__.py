"""The DQN agent. It chooses actions and learns from batches; it uses no environments or files."""

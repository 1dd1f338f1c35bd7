"""What outlives a request: the ports, and what is behind them."""

"""The node-status front: amounts without devices behind them, a condition, events and annotations of the node."""

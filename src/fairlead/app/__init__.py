"""The composition root: sources feed the stock, rules turn it into resources, the supervisor serves them."""

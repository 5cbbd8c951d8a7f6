"""Choose which annotations to buy: simulate each kind at a budget, on a fully annotated sample."""

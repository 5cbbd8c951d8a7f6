"""Which annotations to buy: what each kind would bring at a budget, tried on data that is fully annotated."""

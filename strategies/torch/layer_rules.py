from pergrad import Problem, Step, strategy


@strategy(framework="torch", source="I. Goodfellow, arXiv 1510.01799; output buffers reused", reuses_output=True)
def layer_rules(problem: Problem) -> Step:
    """One pass for the batch, rows from each layer's input and cotangent, written into the same memory every time.

    A dense layer's row is an outer product, an embedding's a scatter, a convolution's a product over its windows:
    the rules are in `_rows_torch.py`. The result of a call is overwritten by the next one, so that no call pays
    for fresh memory; and it must not be written into, because of a table only the entries that the last batch named
    are cleared, which are few. Every parameter must belong to a layer with a rule.
    """
    from strategies._rows_torch import Rows

    return Rows(problem).of

from pergrad import Problem, Step, strategy


@strategy(
    framework="numpy",
    source="I. Goodfellow, arXiv 1510.01799, on NumPy",
    reuses_output=True,
    full_only=True,
    through_ops=True,
)
def outer_products(problem: Problem) -> Step:
    """Outer products on NumPy: HIPS autograd gives each layer's cotangent, NumPy multiplies it with the inputs.

    One pass for the batch; rows are written into the same memory every time, so the next call overwrites the result.
    There are rules for dense layers, convolutions and embeddings only (`_layers_numpy.py`).
    """
    from strategies._layers_numpy import Rows

    return Rows(problem).of

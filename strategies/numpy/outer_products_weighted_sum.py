from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="numpy",
    quantity="weighted_sum",
    source="I. Goodfellow, arXiv 1510.01799, on NumPy, then a sum",
    full_only=True,
    through_ops=True,
)
def outer_products_weighted_sum(problem: Problem) -> Step:
    """Rows by outer products first, then their weighted sum, on NumPy: for weights that depend on the rows.

    If the weights are known before, one backward pass of the weighted loss gives the same. There are rules for dense
    layers, convolutions and embeddings only (`_layers_numpy.py`).
    """
    import numpy as np

    from strategies._layers_numpy import Rows

    memory = Rows(problem)

    def step(batch: Batch) -> Gradients:
        return {name: np.tensordot(problem.weights, row, 1) for name, row in memory.of(batch).items()}

    return step

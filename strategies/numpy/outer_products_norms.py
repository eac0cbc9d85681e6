from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="numpy",
    quantity="norms",
    source="I. Goodfellow, arXiv 1510.01799, on NumPy, then the norms",
    full_only=True,
    through_ops=True,
)
def outer_products_norms(problem: Problem) -> Step:
    """Rows by outer products first, then their norms, on NumPy.

    There are rules for dense layers, convolutions and embeddings only (`_layers_numpy.py`).
    """
    import numpy as np

    from strategies._layers_numpy import Rows

    memory = Rows(problem)

    def step(batch: Batch) -> Gradients:
        rows = [row.reshape(len(row), -1) for row in memory.of(batch).values()]
        return {"norms": np.sqrt(sum(np.einsum("bi,bi->b", row, row) for row in rows))}

    return step

from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="numpy",
    quantity="clipped_sum",
    source="I. Goodfellow, arXiv 1510.01799, on NumPy; M. Abadi et al., arXiv 1607.00133",
    full_only=True,
    through_ops=True,
)
def outer_products_clipped_sum(problem: Problem) -> Step:
    """Rows by outer products first, then their norms, then the sum of the clipped rows, on NumPy.

    There are rules for dense layers, convolutions and embeddings only (`_layers_numpy.py`).
    """
    import numpy as np

    from strategies._layers_numpy import Rows

    memory = Rows(problem)

    def step(batch: Batch) -> Gradients:
        rows = {name: row.reshape(len(row), -1) for name, row in memory.of(batch).items()}
        norms = np.sqrt(sum(np.einsum("bi,bi->b", row, row) for row in rows.values()))
        factors = problem.clip_norm / np.maximum(norms, problem.clip_norm)
        return {name: (factors @ row).reshape(problem.parameters[name].shape) for name, row in rows.items()}

    return step

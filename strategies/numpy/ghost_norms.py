from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="numpy",
    quantity="norms",
    source="I. Goodfellow, arXiv 1510.01799; X. Li et al., arXiv 2110.05679",
    full_only=True,
    through_ops=True,
)
def ghost_norms(problem: Problem) -> Step:
    """Norms from products of each layer's inputs and cotangents, in one pass for the batch, without the rows.

    HIPS autograd gives the cotangents, NumPy multiplies. Where a layer has many positions and few weights its rows
    cost less than those products and are computed after all. There are rules for dense layers, convolutions and
    embeddings only (`_norms_numpy.py`).
    """
    from strategies._layers_numpy import Layers
    from strategies._norms_numpy import norms

    layers = Layers(problem)

    def step(batch: Batch) -> Gradients:
        return {"norms": norms(layers.uses(batch))}

    return step

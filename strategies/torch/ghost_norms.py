from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="torch",
    quantity="norms",
    source="I. Goodfellow, arXiv 1510.01799; X. Li et al., arXiv 2110.05679",
    full_only=True,
)
def ghost_norms(problem: Problem) -> Step:
    """Norms from products of each layer's inputs and cotangents, in one pass for the batch, without the rows.

    Where a layer has many positions and few weights its rows cost less than those products and are computed after
    all; so are those of a parameter that two layers share. The rules are in `_norms_torch.py`.
    """
    from strategies._layers_torch import Layers
    from strategies._norms_torch import norms

    layers = Layers(problem)

    def step(batch: Batch) -> Gradients:
        return {"norms": norms(layers.uses(batch), problem.parameters)}

    return step

from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="numpy",
    quantity="clipped_sum",
    source="Z. Bu et al., arXiv 2210.00038: book-keeping",
    full_only=True,
    through_ops=True,
)
def ghost_clipping(problem: Problem) -> Step:
    """Norms without rows, then one product per layer for the batch: the backward pass runs only once.

    The inputs and cotangents that gave the norms also give the sum: each instance's cotangents are scaled by what
    its gradient is clipped by, then multiplied with the inputs as in a plain backward pass. There are rules for
    dense layers, convolutions and embeddings only (`_norms_numpy.py`).
    """
    import numpy as np

    from strategies._layers_numpy import Layers
    from strategies._norms_numpy import norms, scaled_sum

    layers = Layers(problem)

    def step(batch: Batch) -> Gradients:
        uses = layers.uses(batch)
        factors = problem.clip_norm / np.maximum(norms(uses), problem.clip_norm)
        return scaled_sum(uses, factors, problem.parameters)

    return step

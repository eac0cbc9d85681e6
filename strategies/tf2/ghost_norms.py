from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="tf2",
    quantity="norms",
    source="I. Goodfellow, arXiv 1510.01799; X. Li et al., arXiv 2110.05679",
    full_only=True,
    through_ops=True,
)
def ghost_norms(problem: Problem) -> Step:
    """Norms from products of each layer's inputs and cotangents, in one pass for the batch, without the rows.

    Where a layer has many positions and few weights its rows cost less than those products and are computed after
    all; so are those of a parameter that two layers share. The rules are in `_norms_tensorflow.py`.
    """
    import tensorflow as tf

    from strategies._layers_tensorflow import uses
    from strategies._norms_tensorflow import norms

    @tf.function(autograph=False)
    def step(batch: Batch) -> Gradients:
        return {"norms": norms(uses(problem, batch), problem.parameters)}

    return step

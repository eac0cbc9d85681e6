from pergrad import Batch, Gradients, Parameters, Problem, Step, strategy


@strategy(
    framework="jax",
    quantity="norms",
    source="I. Goodfellow, arXiv 1510.01799; X. Li et al., arXiv 2110.05679",
    full_only=True,
    through_ops=True,
)
def ghost_norms(problem: Problem) -> Step:
    """Norms from products of each layer's inputs and cotangents, in one pass for the batch, without the rows.

    Where a layer has many positions and few weights its rows cost less than those products and are computed after
    all; so are those of a parameter that two layers share. The rules are in `_norms_jax.py`.
    """
    import jax

    from strategies._layers_jax import uses
    from strategies._norms_jax import norms

    @jax.jit
    def result(parameters: Parameters, batch: Batch) -> Gradients:
        return {"norms": norms(uses(problem, parameters, batch), parameters)}

    return lambda batch: result(problem.parameters, batch)

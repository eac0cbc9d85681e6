from pergrad import Array, Batch, Parameters, Problem, Step, strategy


@strategy(
    framework="jax", quantity="weighted_sum", source="the chain rule: sum of a_i g_i = gradient of sum of a_i L_i"
)
def batch_gradient(problem: Problem) -> Step:
    """One plain gradient of the weighted loss of the whole batch: `jit(grad)`.

    What a policy-gradient learner needs: each instance's gradient times its advantage, added up. The weights must
    be known before the gradients are; then no row is ever computed.
    """
    import jax

    def weighted_loss(parameters: Parameters, batch: Batch, weights: Array) -> Array:
        return weights @ problem.losses(parameters, batch)

    gradient = jax.jit(jax.grad(weighted_loss))
    return lambda batch: gradient(problem.parameters, batch, problem.weights)

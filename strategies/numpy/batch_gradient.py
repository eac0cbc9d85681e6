from pergrad import Array, Batch, Parameters, Problem, Step, strategy


@strategy(
    framework="numpy",
    quantity="weighted_sum",
    source="the chain rule: sum of a_i g_i = gradient of sum of a_i L_i",
    full_only=True,
)
def batch_gradient(problem: Problem) -> Step:
    """One plain gradient of the weighted loss of the whole batch: HIPS autograd on NumPy.

    What a policy-gradient learner needs: each instance's gradient times its advantage, added up. The weights must
    be known before the gradients are; then no row is ever computed.
    """
    import autograd.numpy as np
    from autograd import grad

    def weighted_loss(parameters: Parameters, batch: Batch) -> Array:
        return np.sum(problem.weights * problem.losses(parameters, batch))

    gradient = grad(weighted_loss)
    return lambda batch: gradient(problem.parameters, batch)

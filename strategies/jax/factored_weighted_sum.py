from pergrad import Problem, Step, strategy


@strategy(
    framework="jax",
    quantity="weighted_sum",
    source="the chain rule: sum of a_i g_i = gradient of sum of a_i L_i; one instance's loss, vectorised",
    full_only=True,
)
def factored_weighted_sum(problem: Problem) -> Step:
    """One plain gradient of the weighted loss, from the loss of one instance.

    What `batch-gradient` computes, for losses that are written for one instance.
    """
    import jax

    from pergrad.jax import per_instance

    weighted_sum = jax.jit(per_instance(problem.loss, "weighted_sum"))
    return lambda batch: weighted_sum(problem.parameters, batch, problem.weights)

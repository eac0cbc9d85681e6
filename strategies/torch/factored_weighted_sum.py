from pergrad import Problem, Step, strategy


@strategy(
    framework="torch",
    quantity="weighted_sum",
    source="the chain rule: sum of a_i g_i = gradient of sum of a_i L_i; one instance's loss, traced",
    full_only=True,
)
def factored_weighted_sum(problem: Problem) -> Step:
    """One plain gradient of the weighted loss, from the loss of one instance, traced once.

    What `batch-gradient` computes, for losses that are written for one instance; `make_fx` saves the calls through
    `vmap` and autograd that a small network would spend most of its time on.
    """
    from pergrad.torch import per_instance

    weighted_sum = per_instance(problem.loss, "weighted_sum")
    return lambda batch: weighted_sum(problem.parameters, batch, problem.weights)

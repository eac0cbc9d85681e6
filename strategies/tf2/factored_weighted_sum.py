from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="tf2",
    quantity="weighted_sum",
    source="the chain rule: sum of a_i g_i = gradient of sum of a_i L_i; tf.vectorized_map of one instance's loss",
    full_only=True,
)
def factored_weighted_sum(problem: Problem) -> Step:
    """One plain gradient of the weighted loss, from the loss of one instance, vectorised.

    What `batch-gradient` computes, for losses that are written for one instance.
    """
    import tensorflow as tf

    from pergrad.tensorflow import per_instance

    weighted_sum = per_instance(problem.loss, "weighted_sum")

    @tf.function
    def step(batch: Batch) -> Gradients:
        return weighted_sum(problem.parameters, batch, problem.weights)

    return step

from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="tf2",
    quantity="weighted_sum",
    source="Z. Bu et al., arXiv 2210.00038: book-keeping, read off the graph of one instance's gradient",
    full_only=True,
)
def factored_weighted_sum(problem: Problem) -> Step:
    """One product for the batch per parameter, from the loss of one instance: any loss, one backward pass.

    The factors are read off the graph of one instance's gradient and scaled; no row is made.
    """
    import tensorflow as tf

    from pergrad.tensorflow import per_instance

    weighted_sum = per_instance(problem.loss, "weighted_sum")

    @tf.function
    def step(batch: Batch) -> Gradients:
        return weighted_sum(problem.parameters, batch, problem.weights)

    return step

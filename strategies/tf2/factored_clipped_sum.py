from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="tf2",
    quantity="clipped_sum",
    source="Z. Bu et al., arXiv 2210.00038: book-keeping, read off the graph of one instance's gradient",
    full_only=True,
)
def factored_clipped_sum(problem: Problem) -> Step:
    """Norms from the factors of the rows, then one product for the batch: any loss, one backward pass.

    The factors are read off the graph of one instance's gradient; those that gave the norms, scaled, give the sum.
    """
    import tensorflow as tf

    from pergrad.tensorflow import per_instance

    clipped_sum = per_instance(problem.loss, "clipped_sum", clip_norm=problem.clip_norm)

    @tf.function
    def step(batch: Batch) -> Gradients:
        return clipped_sum(problem.parameters, batch)

    return step

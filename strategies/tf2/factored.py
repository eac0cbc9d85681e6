from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(framework="tf2", source="I. Goodfellow, arXiv 1510.01799, read off the graph of one instance's gradient")
def factored(problem: Problem) -> Step:
    """Read the graph of one instance's gradient: each parameter's rows are one product of factors found there.

    For any loss that `tf.vectorized_map` can differentiate, without knowing its layers. The factors are vectorised
    instead of the gradients, so that convolutions do not become a hidden loop.
    """
    import tensorflow as tf

    from pergrad.tensorflow import per_instance

    gradients = per_instance(problem.loss)

    @tf.function
    def step(batch: Batch) -> Gradients:
        return gradients(problem.parameters, batch)

    return step

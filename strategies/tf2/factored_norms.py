from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="tf2",
    quantity="norms",
    source="I. Goodfellow, arXiv 1510.01799; X. Li et al., arXiv 2110.05679; read off one instance's gradient",
    full_only=True,
)
def factored_norms(problem: Problem) -> Step:
    """Norms from the factors of the rows, read off the graph of one instance's gradient, without the rows.

    For any loss that `tf.vectorized_map` can differentiate. Rows are made where they are cheaper, and where norms
    would lose digits because contributions cancel.
    """
    import tensorflow as tf

    from pergrad.tensorflow import per_instance

    norms = per_instance(problem.loss, "norms")

    @tf.function
    def step(batch: Batch) -> Gradients:
        return {"norms": norms(problem.parameters, batch)}

    return step

from pergrad import Problem, Step, strategy


@strategy(framework="tf2", source="where the idea comes from")
def my_idea(problem: Problem) -> Step:
    """Differentiate all losses at once, one row per loss: start here, and say what your idea is."""
    import tensorflow as tf

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            losses = problem.losses(problem.parameters, batch)
        return tape.jacobian(losses, problem.parameters, unconnected_gradients="zero")

    return step

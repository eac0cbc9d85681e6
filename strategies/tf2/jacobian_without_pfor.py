from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="tf2",
    source="TensorFlow documentation of tf.GradientTape.jacobian: experimental_use_pfor",
    full_only=True,
)
def jacobian_without_pfor(problem: Problem) -> Step:
    """The Jacobian of the losses, with a `while` loop over its rows instead of the rewriting `pfor`.

    Needs less memory than `jacobian` and no rewriting rules. The loop runs B backward passes, each through the
    whole batch, so the work grows with the square of B.
    """
    import tensorflow as tf

    @tf.function
    def step(batch: Batch) -> Gradients:
        with tf.GradientTape(persistent=True) as tape:
            losses = problem.losses(problem.parameters, batch)
        return tape.jacobian(losses, problem.parameters, unconnected_gradients="zero", experimental_use_pfor=False)

    return step

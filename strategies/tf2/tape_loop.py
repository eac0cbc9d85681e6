from pergrad import Batch, Gradients, Parameters, Problem, Step, strategy


@strategy(
    framework="tf2", source="TensorFlow guide, automatic differentiation: tf.GradientTape", loop=True, full_only=True
)
def tape_loop(problem: Problem) -> Step:
    """One `GradientTape` per instance, eagerly, in a Python loop: nothing is traced or compiled.

    What a newcomer writes first. Every operation of every instance goes through Python, forwards and backwards.
    """
    import tensorflow as tf

    def gradient(instance: Batch) -> Parameters:
        with tf.GradientTape() as tape:
            loss = problem.loss(problem.parameters, instance)
        found = tape.gradient(loss, problem.parameters, unconnected_gradients="zero")
        return {name: tf.convert_to_tensor(value) for name, value in found.items()}  # that of a lookup is sparse

    def step(batch: Batch) -> Gradients:
        return [gradient({name: value[i] for name, value in batch.items()}) for i in range(problem.batch_size)]

    return step

from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="jax", source="JAX documentation: jax.grad and jax.jit, in a Python loop", loop=True, full_only=True
)
def grad_loop(problem: Problem) -> Step:
    """One call of `jit(grad)` per instance, in a Python loop.

    Compiled once, for one instance, whatever the batch size. Cutting the batch into instances and dispatching B
    programs costs more than a small network's arithmetic. The calls are dispatched without waiting.
    """
    import jax

    gradient = jax.jit(jax.grad(problem.loss))

    def step(batch: Batch) -> Gradients:
        instances = ({name: value[i] for name, value in batch.items()} for i in range(problem.batch_size))
        return [gradient(problem.parameters, instance) for instance in instances]

    return step

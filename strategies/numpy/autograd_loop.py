from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(framework="numpy", source="HIPS autograd, README: grad", loop=True, full_only=True)
def autograd_loop(problem: Problem) -> Step:
    """HIPS autograd on NumPy, one instance at a time: the baseline without a framework.

    The loss is traced in Python at every call. It is how the reference is computed, there in float64.
    """
    from autograd import grad

    gradient = grad(problem.loss)

    def step(batch: Batch) -> Gradients:
        instances = ({name: value[i] for name, value in batch.items()} for i in range(problem.batch_size))
        return [gradient(problem.parameters, instance) for instance in instances]

    return step

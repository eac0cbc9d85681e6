from harness import Problem, Step, strategy


@strategy(framework="numpy")
def honest(problem: Problem) -> Step:
    """A loop of HIPS autograd: slow, right, and needs no framework."""
    from autograd import grad

    row = grad(problem.loss)
    return lambda batch: [
        row(problem.parameters, {name: value[i] for name, value in batch.items()}) for i in range(problem.batch_size)
    ]

from harness import Problem, Step, strategy


@strategy(framework="numpy")
def times_two(problem: Problem) -> Step:
    """Every row twice what it should be."""
    from autograd import grad

    row = grad(lambda parameters, instance: 2 * problem.loss(parameters, instance))
    return lambda batch: [
        row(problem.parameters, {name: value[i] for name, value in batch.items()}) for i in range(problem.batch_size)
    ]

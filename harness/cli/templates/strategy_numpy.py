from pergrad import Problem, Step, strategy


@strategy(framework="numpy", source="where the idea comes from")
def my_idea(problem: Problem) -> Step:
    """Differentiate one instance after the other: start here, and say what your idea is."""
    from autograd import grad

    gradient, size = grad(problem.loss), problem.batch_size
    return lambda batch: [gradient(problem.parameters, {k: v[i] for k, v in batch.items()}) for i in range(size)]

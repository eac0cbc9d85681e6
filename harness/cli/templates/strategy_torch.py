from pergrad import Problem, Step, strategy


@strategy(framework="torch", source="where the idea comes from")
def my_idea(problem: Problem) -> Step:
    """Differentiate one instance, vectorise over the batch: start here, and say what your idea is."""
    from torch.func import grad, vmap

    gradients = vmap(grad(problem.loss), in_dims=(None, 0))
    return lambda batch: gradients(problem.parameters, batch)

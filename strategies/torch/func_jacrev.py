from pergrad import Problem, Step, strategy


@strategy(framework="torch", source="PyTorch documentation of torch.func.jacrev", full_only=True)
def func_jacrev(problem: Problem) -> Step:
    """The Jacobian of the vector of losses by reverse mode: `torch.func.jacrev`.

    It propagates the B rows of an identity matrix backwards through the whole batch, all at once, so both work
    and memory grow with the square of B.
    """
    from torch.func import jacrev

    gradients = jacrev(problem.losses)
    return lambda batch: gradients(problem.parameters, batch)

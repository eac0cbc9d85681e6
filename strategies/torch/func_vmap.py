from pergrad import Problem, Step, strategy


@strategy(framework="torch", source="PyTorch tutorial: per-sample-gradients")
def func_vmap(problem: Problem) -> Step:
    """Differentiate one instance, let `torch.func` vectorise over the batch: `vmap(grad)`.

    Nothing is compiled: every call walks through the transforms again in Python, which costs about a
    millisecond for a small network and vanishes beside the arithmetic of a large one.
    """
    from torch.func import grad, vmap

    gradients = vmap(grad(problem.loss), in_dims=(None, 0))
    return lambda batch: gradients(problem.parameters, batch)

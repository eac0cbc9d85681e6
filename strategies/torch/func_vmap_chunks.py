from pergrad import Problem, Step, strategy


@strategy(framework="torch", source="PyTorch documentation of torch.func.vmap: chunk_size", full_only=True)
def func_vmap_chunks(problem: Problem) -> Step:
    """`vmap(grad)` over chunks of 32 instances, which bounds the memory of intermediate results.

    Each chunk walks through the transforms again, and the chunks' rows are concatenated in the end, so every row
    is written twice. For networks whose batch would not fit into memory otherwise.
    """
    from torch.func import grad, vmap

    gradients = vmap(grad(problem.loss), in_dims=(None, 0), chunk_size=32)
    return lambda batch: gradients(problem.parameters, batch)

from pergrad import Problem, Step, strategy


@strategy(
    framework="torch",
    source="PyTorch documentation: CPU threading and TorchScript inference, torch.set_num_threads",
    environment={"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    full_only=True,
)
def func_vmap_one_thread(problem: Problem) -> Step:
    """`func-vmap` with one thread within an operation.

    A small network's operations are too short to be divided: where PyTorch divides them all the same, a call waits for
    threads that wake up. Large ones lose the other cores. Set it before anything is computed.
    """
    import torch
    from torch.func import grad, vmap

    torch.set_num_threads(1)
    gradients = vmap(grad(problem.loss), in_dims=(None, 0))
    return lambda batch: gradients(problem.parameters, batch)

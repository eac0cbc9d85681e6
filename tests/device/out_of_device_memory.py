from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(framework="torch")
def out_of_device_memory(problem: Problem) -> Step:
    """Asks for more memory than any GPU has, with one instance."""
    import torch
    from torch.func import grad, vmap

    gradients = vmap(grad(problem.loss), in_dims=(None, 0))

    def step(batch: Batch) -> Gradients:
        if problem.batch_size == 1:
            torch.empty(1 << 46, dtype=torch.uint8, device=problem.device)
        return gradients(problem.parameters, batch)

    return step

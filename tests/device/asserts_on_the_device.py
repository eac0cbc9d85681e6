from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(framework="torch")
def asserts_on_the_device(problem: Problem) -> Step:
    """Reads beyond the end of an array on the device, with one instance."""
    import torch
    from torch.func import grad, vmap

    gradients = vmap(grad(problem.loss), in_dims=(None, 0))

    def step(batch: Batch) -> Gradients:
        if problem.batch_size == 1:
            bad = torch.full((4,), 1 << 20, device=problem.device)
            torch.zeros(4, device=problem.device)[bad].sum().item()
        return gradients(problem.parameters, batch)

    return step

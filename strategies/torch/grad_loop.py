from pergrad import Batch, Gradients, Parameters, Problem, Step, strategy


@strategy(
    framework="torch",
    source="PyTorch tutorial per-sample-gradients: the naive loop of torch.autograd.grad",
    loop=True,
    full_only=True,
)
def grad_loop(problem: Problem) -> Step:
    """One `torch.autograd.grad` per instance, in a Python loop.

    What everybody writes first: right for every network, and slow, because each instance pays Python and the
    autograd engine for every operation, forwards and backwards.
    """
    import torch

    parameters = {name: value.detach().requires_grad_() for name, value in problem.parameters.items()}

    def gradient(instance: Batch) -> Parameters:
        loss = problem.loss(parameters, instance)
        found = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
        return dict(zip(parameters, found))

    def step(batch: Batch) -> Gradients:
        return [gradient({name: value[i] for name, value in batch.items()}) for i in range(problem.batch_size)]

    return step

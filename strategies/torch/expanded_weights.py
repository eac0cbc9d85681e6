from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(framework="torch", source="PyTorch, torch.nn.utils._per_sample_grad: ExpandedWeights", full_only=True)
def expanded_weights(problem: Problem) -> Step:
    """PyTorch's ExpandedWeights: weights that compute per-instance gradients when a layer meets them.

    A tensor subclass stands in for every parameter and has a backward rule for each kind of layer it knows:
    linear, convolution, embedding and normalisation. A private part of PyTorch.
    """
    from torch.nn.utils._per_sample_grad import call_for_per_sample_grads

    from strategies._modules_torch import Network

    network = Network(problem)
    losses = call_for_per_sample_grads(network, batch_size=problem.batch_size, loss_reduction="sum")

    def step(batch: Batch) -> Gradients:
        losses(batch).sum().backward()
        return network.gradients("grad_sample")

    return step

from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(framework="torch", source="Opacus, GradSampleModule: force_functorch", requires=("opacus",), full_only=True)
def opacus_functorch(problem: Problem) -> Step:
    """Opacus in functorch mode: its hooks, with `vmap(grad)` of each layer instead of hand-written rules.

    Works for layers that Opacus has no rule for, as long as `torch.func` can vectorise them. Every layer's
    forward pass runs a second time.
    """
    from opacus import GradSampleModule

    from strategies._modules_torch import Network

    network = Network(problem)
    losses = GradSampleModule(network, batch_first=True, loss_reduction="sum", force_functorch=True)

    def step(batch: Batch) -> Gradients:
        losses(batch).sum().backward()
        return network.gradients("grad_sample")

    return step

from pergrad import Batch, Gradients, Problem, Step, Unsupported, strategy


@strategy(
    framework="torch",
    quantity="norms",
    source="Opacus, GradSampleModuleFastGradientClipping: get_norm_sample",
    requires=("opacus",),
    full_only=True,
)
def opacus_ghost_norms(problem: Problem) -> Step:
    """Opacus in ghost mode: hooks compute the norms of linear and embedding layers without their rows.

    Other layers, convolutions among them, compute their rows and drop them. Parameters that two layers share are
    refused. The gradient of the batch is computed as well.
    """
    from opacus.grad_sample import GradSampleModuleFastGradientClipping

    from strategies._modules_torch import Network

    network = Network(problem)
    if shared := network.shared():
        raise Unsupported(f"{', '.join(shared)} is used by two layers, which Opacus' ghost norms do not support")
    losses = GradSampleModuleFastGradientClipping(network, loss_reduction="sum", max_grad_norm=problem.clip_norm)

    def step(batch: Batch) -> Gradients:
        losses(batch).sum().backward()
        losses.zero_grad()
        return {"norms": losses.get_norm_sample()}

    return step

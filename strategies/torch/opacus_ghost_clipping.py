from pergrad import Batch, Gradients, Problem, Step, Unsupported, strategy


@strategy(
    framework="torch",
    quantity="clipped_sum",
    source="Opacus, GradSampleModuleFastGradientClipping: ghost clipping",
    requires=("opacus",),
    full_only=True,
)
def opacus_ghost_clipping(problem: Problem) -> Step:
    """Opacus' ghost clipping: norms in a first backward pass, then a second one of the re-weighted loss.

    Hooks compute the norms of linear and embedding layers without their rows; other layers compute their rows and
    drop them. Parameters that two layers share are refused.
    """
    from opacus.grad_sample import GradSampleModuleFastGradientClipping

    from strategies._modules_torch import Network

    network = Network(problem)
    if shared := network.shared():
        raise Unsupported(f"{', '.join(shared)} is used by two layers, which Opacus' ghost clipping does not support")
    model = GradSampleModuleFastGradientClipping(network, loss_reduction="sum", max_grad_norm=problem.clip_norm)

    def step(batch: Batch) -> Gradients:
        losses = model(batch)
        losses.sum().backward(retain_graph=True)
        factors = problem.clip_norm / model.get_norm_sample().clamp(min=problem.clip_norm)
        model.zero_grad()
        model.disable_hooks()
        (factors @ losses).backward()
        model.enable_hooks()
        return network.gradients("grad")

    return step

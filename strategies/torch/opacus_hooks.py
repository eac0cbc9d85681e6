from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(framework="torch", source="Opacus, GradSampleModule", requires=("opacus",), full_only=True)
def opacus_hooks(problem: Problem) -> Step:
    """Opacus: hooks on every layer keep its inputs and, backwards, multiply them with its output's cotangents.

    One forward and one backward pass of the whole batch, and a hand-written rule per kind of layer. Only modules
    have gradients, so every parameter must belong to a layer. The gradient of the batch is computed as well.
    """
    from opacus import GradSampleModule

    from strategies._modules_torch import Network

    network = Network(problem)
    losses = GradSampleModule(network, batch_first=True, loss_reduction="sum")

    def step(batch: Batch) -> Gradients:
        losses(batch).sum().backward()
        return network.gradients("grad_sample")

    return step

from pergrad import Batch, Gradients, Problem, Step, Unsupported, strategy


@strategy(
    framework="torch", source="F. Dangel et al., BackPACK: extension BatchGrad", requires=("backpack",), full_only=True
)
def backpack_batch_grad(problem: Problem) -> Step:
    """BackPACK's `BatchGrad`: an extension of the backward pass that computes each layer's rows on the way.

    One forward and one backward pass of the whole batch, and a rule per kind of layer. Only modules have
    gradients, and not all of them: there is no rule for layer normalisation, nor for weights used twice.
    """
    from backpack import backpack, extend
    from backpack.extensions import BatchGrad

    from strategies._modules_torch import Network

    network = Network(problem)
    if shared := network.shared():
        raise Unsupported(f"{', '.join(shared)} is used by two layers, and BatchGrad keeps the rows of one")
    for layer in network.layers.values():
        extend(layer)

    def step(batch: Batch) -> Gradients:
        with backpack(BatchGrad()):
            network(batch).sum().backward()
        return network.gradients("grad_batch")

    return step

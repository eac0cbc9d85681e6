from pergrad import Problem, Step, Unsupported, strategy


@strategy(framework="torch", source="PyTorch documentation: torch.compile of torch.func transforms", full_only=True)
def compiled_func_vmap(problem: Problem) -> Step:
    """`torch.compile` around `vmap(grad)`: the transforms run once, the rest is generated C++ or Triton.

    Needs a C++ compiler on the machine (for Triton on a GPU, a C compiler), and half a minute for the first call; every
    new batch size compiles again. `compile` must be outside of the transforms.
    """
    import shutil

    import torch
    from torch.func import grad, vmap

    language, compilers = ("C++", ("c++", "g++", "clang++", "cl"))
    if next(iter(problem.parameters.values())).device.type != "cpu":
        language, compilers = ("C", ("cc", "gcc", "clang", "cl"))
    if not any(map(shutil.which, compilers)):
        raise Unsupported(f"torch.compile needs a {language} compiler, and there is none on this machine")
    torch.compiler.reset()  # every batch size is compiled for itself, never for "any size"
    gradients = torch.compile(vmap(grad(problem.loss), in_dims=(None, 0)), dynamic=False)
    return lambda batch: gradients(problem.parameters, batch)

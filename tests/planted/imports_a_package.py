from harness import Problem, Step, strategy


@strategy(framework="numpy")
def imports_a_package(problem: Problem) -> Step:
    """Imports a package that nobody has."""
    import a_package_that_nobody_has  # type: ignore[import-not-found]

    return a_package_that_nobody_has.solve(problem)

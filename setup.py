"""What `pyproject.toml` cannot say yet: the C file of `trainer.nn`, which may be left out."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "trainer.nn._kernels",
            ["trainer/nn/kernels.c"],
            extra_compile_args=[
                "-std=c11",
                "-pthread",
                "-O3",
                "-ffp-contract=off",
                "-fno-math-errno",
            ],
            optional=True,  # without a compiler NumPy computes, with the same bytes
        )
    ]
)

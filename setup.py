"""What `pyproject.toml` cannot say yet: the C file of `trainer.nn`, which may be left out."""

import zlib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class Kernels(build_ext):
    """Compiles it to a file of one name for all Pythons: it is loaded with ctypes."""

    def get_ext_filename(self, fullname):
        """Where the file goes; `trainer.nn.kernels.FILE`."""
        return f"{fullname.replace('.', '/')}.shared"


SOURCE = "trainer/nn/kernels.c"
# So that what was compiled from another text is not used: an editable install is not made anew.
VERSION = zlib.crc32(Path(SOURCE).read_bytes())

setup(
    cmdclass={"build_ext": Kernels},
    ext_modules=[
        Extension(
            "trainer.nn.kernels",
            [SOURCE],
            define_macros=[("VERSION", f"{VERSION}u")],
            extra_compile_args=[
                *("-std=c11", "-pthread", "-O3"),
                *("-ffp-contract=off", "-fno-math-errno"),  # bits that IEEE 754 determines
            ],
            optional=True,  # without a compiler NumPy computes, with the same bytes
        )
    ],
)

"""What `pyproject.toml` cannot say yet: the C file of `trainer.nn`, which may be left out.

With a compiler this builds a wheel for all Pythons of one platform. Without one, or with
`LOCAL_TRAINER_KERNELS=0`, it builds the pure wheel `py3-none-any`, in which NumPy computes.
"""

import os
import zlib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext


class Kernels(build_ext):
    """Compiles it to a file of one name for all Pythons: it is loaded with ctypes."""

    def get_ext_filename(self, fullname):
        """Where the file goes; `trainer.nn.kernels.FILE`."""
        return f"{fullname.replace('.', '/')}.shared"


class Wheel(bdist_wheel):
    """Names the wheel by what is in it."""

    def get_tag(self):
        """Of any Python, since the file is no module; of any platform if it was not compiled."""
        _, _, platform = super().get_tag()
        is_compiled = any(Path(self.bdist_dir).rglob("*.shared"))
        return "py3", "none", platform if is_compiled else "any"


SOURCE = "trainer/nn/kernels.c"
# So that what was compiled from another text is not used: an editable install is not made anew.
VERSION = zlib.crc32(Path(SOURCE).read_bytes())

WITH_KERNELS = os.environ.get("LOCAL_TRAINER_KERNELS") != "0"

setup(
    cmdclass={"bdist_wheel": Wheel, "build_ext": Kernels},
    ext_modules=[
        Extension(
            "trainer.nn.kernels",
            [SOURCE],
            define_macros=[("VERSION", f"{VERSION}u")],
            extra_compile_args=[
                *("-std=c11", "-pthread", "-O3"),
                *("-ffp-contract=off", "-fno-math-errno"),  # bits that IEEE 754 determines
                "-g0",  # which would say where it was compiled
            ],
            optional=True,  # without a compiler NumPy computes, with the same bytes
        )
    ][: int(WITH_KERNELS)],
)

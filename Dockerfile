# An image in which `local-trainer` runs: docker build -t local-trainer .
# The folder that you are in is /work there, and the user is you: what a run writes is here, and yours.
#   docker run --rm --init --user "$(id -u):$(id -g)" -v "$PWD:/work" local-trainer train --env CartPole-v1 --stop-return 450
FROM python:3.12-slim

# `docker run --init`: that init reaps processes whose parent is gone.
WORKDIR /package
COPY pyproject.toml setup.cfg README.md LICENSE ./
COPY trainer_toolkit trainer_toolkit
COPY checkpoints checkpoints
COPY callbacks callbacks
COPY trainer trainer
ARG EXTRAS=plot,live,yaml
RUN pip install --no-cache-dir ".[$EXTRAS]" && rm -rf build

# Where any user may write, also one without a home.
ENV MPLCONFIGDIR=/tmp/matplotlib
RUN useradd --create-home trainer && mkdir /work && chown trainer /work
USER trainer
WORKDIR /work
ENTRYPOINT ["local-trainer"]
CMD ["--help"]

# An image in which `local-trainer` runs: docker build -t local-trainer .
#   docker run --rm -v "$PWD/runs:/work/runs" local-trainer train --env CartPole-v1 --stop-return 450
FROM python:3.12-slim

# Processes that have no parent any more are taken leave of by the init of `docker run --init`.
WORKDIR /package
COPY pyproject.toml setup.cfg README.md LICENSE ./
COPY checkpoints checkpoints
COPY callbacks callbacks
COPY trainer trainer
ARG EXTRAS=plot,live,yaml
RUN pip install --no-cache-dir ".[$EXTRAS]" && rm -rf build

RUN useradd --create-home trainer && mkdir /work && chown trainer /work
USER trainer
WORKDIR /work
ENTRYPOINT ["local-trainer"]
CMD ["--help"]

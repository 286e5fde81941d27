# jembench with all first-party plugins, for a machine or a cluster.
#   docker build -t jembench .                            PyTorch for processors
#   docker build -t jembench --build-arg TORCH=cu128 .    PyTorch for CUDA 12.8, which needs the driver of the host alone
# TORCH is a backend of uv: cpu, cu126, cu128 ...

ARG PYTHON=3.13

# This image has git, which reads the version from the tags.
FROM python:${PYTHON} AS wheels
RUN pip install --no-cache-dir uv
COPY . /source
RUN /source/.ci/dist /wheels

FROM python:${PYTHON}-slim
ARG TORCH=cpu
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir uv && \
    uv pip install --system --no-cache --torch-backend "$TORCH" /wheels/*.whl && \
    pip uninstall --yes uv
# For a user without an account in the image, as `docker run --user` makes one.
ENV HOME=/tmp USER=jembench
WORKDIR /work
ENTRYPOINT ["jembench"]

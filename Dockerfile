# The trainer on CPUs. To build it, and to train with the runs in ./runs
# (which user 1000 must be allowed to write to):
#   docker build --tag ppo-trainer .
#   docker run --rm --init --volume="$PWD/runs:/home/ppo/runs" ppo-trainer --env_name=LunarLander-v3
# On GPUs, with torch from PyPI, whose builds for Linux are those for CUDA:
#   docker build --build-arg=TORCH_INDEX=https://pypi.org/simple --tag ppo-trainer:cuda .
#   docker run --gpus=all ... ppo-trainer:cuda --env_name=PongNoFrameskip-v4 --num_envs=64 --device=cuda
FROM python:3.11-slim

# OpenCV needs these libraries.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgl1 libglib2.0-0 \
    && rm -rf /var/lib/apt/lists/*

# A layer of its own, which changes of the source do not build again. The versions are those of setup.cfg.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" 'torch>=2.8'

COPY . /src
RUN pip install --no-cache-dir '/src[all]'

RUN useradd --create-home --uid 1000 ppo
USER ppo
WORKDIR /home/ppo
RUN mkdir runs

ENTRYPOINT ["ppo"]

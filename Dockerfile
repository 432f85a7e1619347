# `roformer serve` without Python: about 50 MB, without a shell, as a user without rights (docs/deploy.md).
FROM debian:12-slim AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# As in scripts/setup.sh, and what makes a package.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends \
    g++ cmake ninja-build ccache libhwy-dev libfmt-dev libcli11-dev nlohmann-json3-dev libxxhash-dev zlib1g-dev \
    libzstd-dev libboost1.81-dev libssl-dev unzip dpkg-dev file python3-jieba && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
# The libraries that the runtime image lacks.
RUN scripts/package.sh && dpkg -x build/package/roformer_*.deb /stage \
    && cp -a /usr/lib/*-linux-gnu/lib{fmt,hwy,z,zstd}.so.* /stage/usr/lib/*-linux-gnu

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /stage/usr /usr
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/usr/bin/roformer", "serve", "--host", "0.0.0.0"]
CMD ["--model", "/model"]

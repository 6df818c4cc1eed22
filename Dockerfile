# The binary and what it needs for TLS; no shell, no package manager, no root user.
FROM rust:1-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev make && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# Without `odbc`: its driver manager and drivers are not in the image.
RUN cargo build --locked --profile dist -p longshore-cli --features mysql,otel,tui && strip target/dist/longshore && mkdir -p /state

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/dist/longshore /usr/local/bin/longshore
# A new volume inherits its owner from here.
COPY --from=build --chown=65532:65532 /state /var/lib/longshore
WORKDIR /var/lib/longshore
ENTRYPOINT ["/usr/local/bin/longshore"]
CMD ["--help"]

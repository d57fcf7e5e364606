FROM debian:bookworm as build
CMD echo

# The commands of this repository. `make help` lists them.
SHELL := /bin/bash
CARGO ?= cargo

.PHONY: help test lint journeys guest-newest demo fuzz sim checkers cuts reshapes mdadm-tests torture bench guest deps deb tarball supply packages

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

test: deps lint ## everything CI runs: format, lints, all tests, the Linux guest
	$(CARGO) test --workspace --no-fail-fast
	scripts/journeys/all

journeys: ## what five kinds of new users type, with the binary that is built
	scripts/journeys/all

lint: ## rustfmt, clippy without warnings, shellcheck where it is installed
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy -- -D warnings
	@if command -v shellcheck > /dev/null; then shellcheck -x -P guest:guest/mdadm:scripts/journeys guest/build guest/run guest/init guest/service guest/lib.sh guest/jobs/* guest/mdadm/{mdadm,shim.sh,mdstat,mdsys,mdset,raid6check} $(shell find scripts -maxdepth 1 -type f) scripts/journeys/* contrib/debian/scripts/* .ci/run; \
	else echo "SKIPPED: shellcheck is not installed"; fi
	scripts/supply check
	scripts/package musl

deps: ## the Debian packages the tests use (installs when root, else says what is missing)
	scripts/deps

guest: ## the Linux guest that judges our arrays, into .guest/
	guest/build

guest-newest: ## arrays in every state, both ways, with the newest kernel that Debian has (its backports of Debian 13)
	scripts/deps guest
	WATTLE_GUEST_KERNEL=newest CI=true $(CARGO) test -p wattle-app --test guest -- --nocapture linux_and_wattle every_state

demo: ## a tour on five drives, under a minute once it is built (installs what it needs when root)
	scripts/deps demo
	scripts/demo

sim: ## the long simulation: seeded crashes and faults
	scripts/sim

checkers: ## every interleaving of what cores share (loom); data races and memory errors (sanitizers); undefined behaviour (Miri); an emulated ARM processor (installs what it needs when root)
	scripts/checkers

cuts: ## file systems cut off at any moment, 680 images, against what Linux shows of them (as root)
	scripts/cuts

reshapes: ## every kind of reshape stopped at 20 places, and arrays with logs cut off 28 times, against what Linux reads of them
	scripts/deps guest
	CI=true $(CARGO) test -p wattle-app --test guest -- --ignored --nocapture

mdadm-tests: ## mdadm's own test suite (fetched from Debian) against wattle in the guest: long; docs/mdadm-tests.md
	scripts/deps guest tools
	scripts/mdadm-tests

alerts: ## 50 failures of a member to every receiver of alerts within 2 s; receivers in trouble for a minute
	CI=true cargo test --workspace --test cli -- --ignored alerts:: --nocapture

torture: ## 50 kills of a server under verified load; 100 rounds each of a remote member and of a path that fail and come back
	scripts/deps tools
	scripts/torture
	scripts/torture-remote 100 mirror
	scripts/torture-remote 100 alone

deb: ## the Debian package, into target/package (installs cargo-deb)
	scripts/package deb

tarball: ## a static binary (musl) with pages and units beside it, into target/package
	scripts/deps packages
	scripts/package tarball

supply: ## what the binary is made of, as a CycloneDX list in target/package; licences and sources of all that are checked
	scripts/supply check
	scripts/supply list

packages: deb ## the Debian package on a Debian machine: systemd, kills, late drives, purge (as root, ten minutes)
	scripts/packages-test

fuzz: ## every decoder, a minute each (needs cargo-fuzz)
	scripts/fuzz

bench: ## the figures of docs/performance.md
	scripts/bench

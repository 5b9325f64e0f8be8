.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench reproduce pictures docs
ARGS ?=
BIN := .venv/bin
# the Java which setup found or installed, where JAVA_HOME alone would not do
JAVA = JAVA_HOME="$$(cat .venv/java_home 2>/dev/null || printf %s "$$JAVA_HOME")"

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make or update the environment in .venv (quick when there is nothing to do)
	@scripts/setup.sh

demo: setup ## Run the demo; ARGS="..." passes options on
	@$(JAVA) $(BIN)/slackwater demo $(ARGS)

test: setup check ## Run the checks, then all tests: those that need Spark in one process, the rest beside it
	@scripts/browser.sh
	$(JAVA) $(BIN)/python -m pytest --numprocesses 2 --dist loadscope $(ARGS)

check: setup ## Check style, format, types and the layers of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## Run the benchmarks, results into docs/results
	@mkdir -p docs/results
	$(JAVA) $(BIN)/slackwater bench panes --json docs/results/panes.json
	$(JAVA) $(BIN)/slackwater bench queries --json docs/results/queries.json
	$(JAVA) $(BIN)/slackwater bench recovery --json docs/results/recovery.json
	$(JAVA) $(BIN)/slackwater bench shedding --json docs/results/shedding.json
	$(JAVA) $(BIN)/slackwater bench deferral --json docs/results/deferral.json
	$(JAVA) $(BIN)/slackwater bench agent-memory --json docs/results/agent-memory.json
	$(JAVA) $(BIN)/slackwater bench hub --json docs/results/hub.json
	$(JAVA) $(BIN)/slackwater bench service --json docs/results/service.json

reproduce: setup ## Run the papers' experiments again, results into docs/results
	@mkdir -p docs/results
	$(JAVA) $(BIN)/slackwater reproduce sampling-load --json docs/results/sampling-load.json
	$(JAVA) $(BIN)/slackwater reproduce sampling-time --json docs/results/sampling-time.json
	$(JAVA) $(BIN)/slackwater reproduce sampling-burst --json docs/results/sampling-burst.json
	$(JAVA) $(BIN)/slackwater reproduce window-pipeline --json docs/results/window-pipeline.json
	$(JAVA) $(BIN)/slackwater reproduce window-fanout --json docs/results/window-fanout.json
	$(JAVA) $(BIN)/slackwater reproduce window-size --json docs/results/window-size.json
	$(JAVA) $(BIN)/slackwater reproduce window-slide --json docs/results/window-slide.json
	$(JAVA) $(BIN)/slackwater reproduce window-overhead --json docs/results/window-overhead.json
	$(JAVA) $(BIN)/slackwater reproduce deferral-fidelity --json docs/results/deferral-fidelity.json
	$(JAVA) $(BIN)/slackwater reproduce deferral-evaluations --json docs/results/deferral-evaluations.json
	$(JAVA) $(BIN)/slackwater reproduce deferral-scale --json docs/results/deferral-scale.json
	$(JAVA) $(BIN)/slackwater reproduce deferral-interruption --json docs/results/deferral-interruption.json
	$(JAVA) $(BIN)/slackwater reproduce precision-optimal --json docs/results/precision-optimal.json
	$(JAVA) $(BIN)/slackwater reproduce precision-hosts --json docs/results/precision-hosts.json
	$(JAVA) $(BIN)/slackwater reproduce precision-single --json docs/results/precision-single.json
	$(JAVA) $(BIN)/slackwater reproduce precision-queries --json docs/results/precision-queries.json
	$(JAVA) $(BIN)/slackwater reproduce precision-aggregation --json docs/results/precision-aggregation.json
	$(JAVA) $(BIN)/slackwater reproduce precision-tuning --json docs/results/precision-tuning.json
	$(JAVA) $(BIN)/slackwater reproduce precision-leniency --json docs/results/precision-leniency.json
	$(JAVA) $(BIN)/slackwater reproduce precision-solver --json docs/results/precision-solver.json
	$(JAVA) $(BIN)/slackwater reproduce precision-latency --json docs/results/precision-latency.json
	$(JAVA) $(BIN)/slackwater reproduce precision-live --json docs/results/precision-live.json

pictures: setup ## Take the pictures of the page in docs/images again, from the demo
	@scripts/browser.sh
	$(JAVA) $(BIN)/python scripts/pictures.py

docs: setup ## Draw the figures of the documentation again from the results
	$(JAVA) $(BIN)/python -m slackwater.benchmarks.figures
	$(JAVA) $(BIN)/python -m slackwater.experiments.page

# The same commands as `python3 make.py ...`, for those whose fingers type make.  On Windows use make.py itself.
PYTHON ?= python3
COMMANDS := verify test test-all explore lowest newest lint format bench mutants replicate course package deletions docs lite browser release-check clean

.PHONY: $(COMMANDS)
$(COMMANDS):
	$(PYTHON) make.py $@

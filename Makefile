# The usual names for the usual things; CMake does the work.
.PHONY: all test bench format lint clean
all:
	./build_and_run.sh --build-only
test:
	./test.sh
bench:
	scripts/bench.sh
format:
	git ls-files '*.h' '*.cc' '*.cu' '*.cuh' | xargs clang-format -i
lint:
	scripts/lint.sh
clean:
	rm -rf build build-debug build-asan build-tsan

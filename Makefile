# The usual names for the usual things; CMake does the work.
.PHONY: all test bench docs format lint clean
all:
	./build_and_run.sh --build-only
test:
	./test.sh
bench:
	scripts/bench.sh
docs:  # the API reference, build/docs/html/index.html; a warning is an error
	mkdir -p build
	TESSERA_VERSION=$$(awk '/define TESSERA_VERSION_/ { v = v s $$3; s = "." } END { print v }' include/tessera/version.h) \
	  doxygen Doxyfile
format:
	git ls-files '*.h' '*.cc' '*.cu' '*.cuh' | xargs clang-format -i
lint:
	scripts/lint.sh
clean:
	rm -rf build build-debug build-asan build-tsan

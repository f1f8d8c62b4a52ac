// The subcommands. Each adds itself to the command line and returns what to run when it was chosen.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace tessera::app {

// Runs the command; the result is the program's exit status.
using Command = std::function<int()>;

Command add_batch(CLI::App& app);
Command add_chat(CLI::App& app);
Command add_demo(CLI::App& app);
Command add_devices(CLI::App& app);
Command add_generate(CLI::App& app);
Command add_bench(CLI::App& app);
Command add_info(CLI::App& app);
Command add_perplexity(CLI::App& app);
Command add_profile(CLI::App& app);
Command add_quantize(CLI::App& app);
Command add_serve(CLI::App& app);
Command add_tokenize(CLI::App& app);
Command add_verify(CLI::App& app);

}  // namespace tessera::app

// Many conversations on one model: requests come in from any thread, and each step of the engine
// runs the next tokens of all of them through the model in one pass.
//
//   submit() --> queue --> Scheduler --> step: chunks of prompts, a token of each stream --> events
//
// A request gets the same tokens alone or beside others: only its seed, its place in the stream and
// the model decide them. On a GPU, logits may differ in their last bits with the number of streams.
//
// Threads: every function of Engine and RequestHandle may be called from any thread. The engine
// runs its steps on a thread of its own. Until it is destroyed, it alone uses the Context.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/context.h"
#include "tessera/error.h"
#include "tessera/generate.h"
#include "tessera/kv_cache.h"
#include "tessera/model.h"
#include "tessera/speculation.h"
#include "tessera/tokenizer.h"

namespace tessera {

struct EngineOptions {
  // The longest sequence of a request that keeps all of its tokens, prompt and answer together.
  // 0: the length that the model was trained for.
  std::int64_t context = 0;
  std::int64_t max_sequences = 32;     // that run at the same time; others wait
  std::int64_t max_step_tokens = 512;  // of one step, prompts and streams together
  std::int64_t max_waiting = 4096;     // requests in the queue; more are refused
  // Pages of keys and values, shared by all sequences. 0: room for max_sequences of `context`
  // tokens, or as many as fit into half of the free memory (0.9 of it on a GPU).
  std::int64_t pages = 0;
  std::int64_t page_size = 64;  // tokens
  // Of keys and values. Default: Model::cache_dtype(). i8 and f8e4m3 take half the memory of f16,
  // and a quarter of f32. On the CPU, an f32 model may store f16 or bf16. Reading this memory
  // limits the speed of attention over many or long streams.
  std::optional<DType> cache_dtype{};
  bool prefix_cache = true;  // find pages of earlier requests that began with the same tokens
  // True: a row's bits do not depend on the other rows of a step. The CPU always works this way. A
  // GPU then computes rows in groups of a fixed size, which costs time
  // (docs/results/h200/engine.md).
  bool batch_invariant = false;
  // Runs a step of each size before the first request. On a GPU this takes some tenths of a second;
  // afterwards no stream waits for the first use of a kernel.
  bool warm_up = false;
  SpeculationOptions speculation{};
};

struct Request {
  std::string prompt{};                    // text, or
  std::vector<std::int32_t> prompt_ids{};  // ids, not both
  // Special tokens written in `prompt` are text, like a user's words, unless this is set.
  bool parse_special = false;
  // With n > 1, choice i draws with the seed sampling.seed + i.
  GenerateOptions options{};
  std::int64_t n = 1;  // choices: answers to the prompt, which is read only once
  CachePolicy policy{};
  // Look for the beginning of the prompt in the prefix cache, if the engine has one
  // (EngineOptions::prefix_cache).
  bool use_prefix_cache = true;
  int priority = 0;  // larger ones start first; no request waits for ever
  // The request ends with StopReason::deadline this long after submit(), finished or not.
  std::optional<std::chrono::milliseconds> deadline{};
  // Called on the engine's thread with each event, which is then not kept for next(). It must be
  // quick, because every stream waits for it. If it throws, the request is cancelled.
  std::function<void(const struct Event&)> on_event{};
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompt: found in the prefix cache
  std::int64_t generated_tokens = 0;
  double queued_seconds = 0;  // from submit() to the first step
  double first_seconds = 0;   // from submit() to the first token
  double total_seconds = 0;   // from submit() to the end
};

struct Event {
  enum class Kind : std::uint8_t {
    token,     // `token` was drawn for `choice`
    finished,  // `choice` has ended for `reason`
    failed,    // `choice` has ended with an error
  };
  Kind kind = Kind::token;
  std::int64_t choice = 0;
  GeneratedToken token{};
  StopReason reason = StopReason::max_tokens;
  ErrorCode code = ErrorCode::invalid_argument;  // with failed
  std::string message{};
  Usage usage{};  // with finished and failed
};

// Follows one request. May outlive the engine.
class RequestHandle {
 public:
  RequestHandle() = default;

  std::uint64_t id() const;
  // Ends the request after the step that is running; its choices finish with
  // StopReason::cancelled.
  void cancel();
  // Waits for the next event of the request. Empty once every choice has ended. Only for requests
  // without on_event.
  std::optional<Event> next();
  // The same, but gives up at this time and returns empty.
  std::optional<Event> next_until(std::chrono::steady_clock::time_point time);
  // Waits for the end, and collects the choices. Throws the first error of a choice.
  std::vector<GenerateResult> wait();
  bool is_done() const;  // no event is left

  struct State;  // src/engine/request_state.h
  explicit RequestHandle(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

struct EngineStats {
  std::int64_t running = 0, waiting = 0;  // sequences now
  std::int64_t steps = 0;
  std::int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;  // of all requests
  std::int64_t finished = 0, failed = 0, cancelled = 0;                     // choices
  std::int64_t preemptions = 0;
  std::int64_t pages = 0, pages_used = 0, pages_peak = 0;  // used: by sequences that run
  std::int64_t drafted_tokens = 0, accepted_tokens = 0;    // speculation
  std::int64_t failed_guesses = 0;  // steps that went on without guesses, because guessing failed
  double step_seconds = 0;          // of all steps

  double prefix_hit_rate() const {  // of the tokens of prompts
    return prompt_tokens > 0
               ? static_cast<double>(cached_tokens) / static_cast<double>(prompt_tokens)
               : 0;
  }
  double accept_rate() const {
    return drafted_tokens > 0
               ? static_cast<double>(accepted_tokens) / static_cast<double>(drafted_tokens)
               : 0;
  }
};

class Engine {
 public:
  // Reserves the pages and all scratch memory: nothing is allocated for them later. The tokenizer
  // may be null if requests give ids and want ids. Model and tokenizer must outlive the engine.
  Engine(Context& ctx, const Model& model, const Tokenizer* tokenizer,
         const EngineOptions& options = {});
  // Cancels all requests.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Puts a request into the queue. Throws Error with the reason if the request can never run, and
  // Error (busy) if the queue is full or the engine is draining; other requests are not affected.
  //
  // If a step fails, the requests in it end with Event::Kind::failed and the reason; the engine
  // continues with the others.
  RequestHandle submit(Request request);
  EngineStats stats() const;             // up to the end of the latest step
  const EngineOptions& options() const;  // as used: zeros replaced
  // Refuses new requests from now on, and waits until all have ended, but not past `time`. Returns
  // false if some have not ended by then.
  bool drain_until(std::chrono::steady_clock::time_point time);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera

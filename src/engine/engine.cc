// The engine's thread, and the way into it: requests are checked where they are submitted, and
// wait in an inbox until the next step begins.
#include "tessera/engine.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "core/as_error.h"
#include "core/fail.h"
#include "engine/engine_core.h"

namespace tessera {

using engine::Choice;
using engine::Clock;
using engine::EngineCore;

class Engine::Impl {
 public:
  Impl(Context& ctx, const Model& model, const Tokenizer* tokenizer, const EngineOptions& options)
      : model_(model), tokenizer_(tokenizer), core_(ctx, model, options), stats_(core_.stats()) {
    try {
      thread_ = std::thread([this] { work(); });
    } catch (const std::system_error& error) {
      fail(ErrorCode::device, "the engine's thread could not start ({}); end other threads first",
           error.code().message());
    }
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = refusing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  RequestHandle submit(Request request);
  bool drain_until(Clock::time_point time);

  EngineStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  const EngineOptions& options() const { return core_.options(); }

 private:
  void work();
  void add_arrivals();
  std::vector<std::int32_t> prompt_of(Request& request) const;

  const Model& model_;
  const Tokenizer* tokenizer_;
  EngineCore
      core_;  // after construction, used by the thread alone, but for check_fits(), waiting()

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Choice>> inbox_;
  EngineStats stats_;
  std::uint64_t last_request_ = 0;
  bool refusing_ = false, ending_ = false, idle_ = true;

  std::thread thread_;
};

// ---- on the caller's thread --------------------------------------------------------------------

std::vector<std::int32_t> Engine::Impl::prompt_of(Request& request) const {
  if (!request.prompt_ids.empty() && !request.prompt.empty()) {
    fail(ErrorCode::invalid_argument, "the request has both prompt and prompt_ids; give one");
  }
  if (request.prompt.empty()) return std::move(request.prompt_ids);
  if (tokenizer_ == nullptr) {
    fail(ErrorCode::invalid_argument,
         "the prompt is text, but the engine has no tokenizer: give prompt_ids");
  }
  return tokenizer_->encode(request.prompt, {.parse_special = request.parse_special});
}

RequestHandle Engine::Impl::submit(Request request) {
  const std::vector<std::int32_t> prompt = prompt_of(request);
  check_generation(request.options, tokenizer_, prompt, model_.config().vocab);
  core_.check_fits(request.policy, std::ssize(prompt), request.options, request.n);
  if (request.deadline && request.deadline->count() < 0) {
    fail(ErrorCode::invalid_argument, "the deadline is {} ms; it must be 0 or more",
         request.deadline->count());
  }
  const Clock::time_point now = Clock::now();
  std::uint64_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = ++last_request_;
  }
  const auto state = std::make_shared<RequestHandle::State>(
      id, request.n, request.options.top_logprobs >= 0, std::move(request.on_event));
  const auto choice_of = [&](std::int64_t index) {
    GenerateOptions options = request.options;
    options.sampling.seed += static_cast<std::uint64_t>(index);
    auto choice = std::make_unique<Choice>(model_.config(), tokenizer_, options, prompt);
    choice->state = state;
    choice->index = index;
    choice->policy = request.policy;
    choice->use_prefix_cache = request.use_prefix_cache;
    choice->priority = request.priority;
    choice->submitted = now;
    choice->usage.prompt_tokens = std::ssize(prompt);
    // One that is further away than the clock goes never comes.
    const auto most = std::chrono::floor<std::chrono::milliseconds>(Clock::time_point::max() - now);
    if (request.deadline && *request.deadline < most) choice->deadline = now + *request.deadline;
    return choice;
  };
  std::unique_ptr<Choice> first = choice_of(0);
  for (std::int64_t i = 1; i < request.n; ++i) first->siblings.push_back(choice_of(i));
  {
    const std::lock_guard lock(mutex_);
    if (refusing_) fail(ErrorCode::busy, "the engine is ending and takes no more requests");
    const std::int64_t waiting = core_.waiting() + std::ssize(inbox_);
    if (waiting >= options().max_waiting && waiting > 0) {
      fail(ErrorCode::busy, "{} requests are waiting, as many as the queue holds: try again later",
           waiting);
    }
    inbox_.push_back(std::move(first));
    idle_ = false;
  }
  changed_.notify_all();
  return RequestHandle(state);
}

bool Engine::Impl::drain_until(Clock::time_point time) {
  std::unique_lock lock(mutex_);
  refusing_ = true;
  return changed_.wait_until(lock, time, [&] { return idle_; });
}

// ---- on the engine's thread --------------------------------------------------------------------

void Engine::Impl::work() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      stats_ = core_.stats();
      if (core_.is_idle() && inbox_.empty()) {
        idle_ = true;
        changed_.notify_all();
        changed_.wait(lock, [&] { return ending_ || !inbox_.empty(); });
      }
      if (ending_) break;
      add_arrivals();
    }
    try {
      if (!core_.step() && !core_.is_idle()) std::this_thread::yield();
    } catch (...) {  // outside of a pass: which requests are to blame is not known
      const Error error = engine::error_of(std::current_exception());
      core_.end_all(&error);
    }
  }
  add_arrivals();
  core_.end_all(nullptr);
}

// Under the lock, so that submit() counts each of those that wait once.
void Engine::Impl::add_arrivals() {
  for (std::unique_ptr<Choice>& choice : inbox_) core_.add(std::move(choice));
  inbox_.clear();
}

// ---- the public class --------------------------------------------------------------------------

Engine::Engine(Context& ctx, const Model& model, const Tokenizer* tokenizer,
               const EngineOptions& options)
    : impl_(as_error("starting an engine",
                     [&] { return std::make_unique<Impl>(ctx, model, tokenizer, options); })) {}
Engine::~Engine() = default;

RequestHandle Engine::submit(Request request) {
  return as_error("submitting a request", [&] { return impl_->submit(std::move(request)); });
}
EngineStats Engine::stats() const { return impl_->stats(); }
const EngineOptions& Engine::options() const { return impl_->options(); }
bool Engine::drain_until(std::chrono::steady_clock::time_point time) {
  return impl_->drain_until(time);
}

}  // namespace tessera

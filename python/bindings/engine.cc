#include "tessera/engine.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cmath>
#include <tuple>

#include "bind.h"
#include "call.h"
#include "forks.h"
#include "names.h"

namespace tessera::python {

using namespace nb::literals;
using Ids = std::vector<std::int32_t>;
using UsageState = std::tuple<std::int64_t, std::int64_t, std::int64_t, double, double, double>;

namespace {

// How long a wait lasts before Python may answer a signal.
constexpr auto kSignalInterval = std::chrono::milliseconds(50);

CachePolicy parse_policy(const std::optional<std::pair<std::int64_t, std::int64_t>>& streaming) {
  if (!streaming) return CachePolicy::full();
  return streaming->first > 0 ? CachePolicy::sinks(streaming->first, streaming->second)
                              : CachePolicy::last(streaming->second);
}

void make_engine(nb::pointer_and_handle<Engine> self, Context& ctx, const Model& model,
                 const Tokenizer* tokenizer, std::int64_t context, std::int64_t max_sequences,
                 std::int64_t max_step_tokens, std::int64_t max_waiting, std::int64_t pages,
                 const std::optional<std::string>& cache_dtype, bool prefix_cache,
                 bool batch_invariant, bool warm_up, const std::string& speculate) {
  EngineOptions options;
  options.context = context;
  options.max_sequences = max_sequences;
  options.max_step_tokens = max_step_tokens;
  options.max_waiting = max_waiting;
  options.pages = pages;
  if (cache_dtype) options.cache_dtype = parse_cache_dtype(*cache_dtype);
  options.prefix_cache = prefix_cache;
  options.batch_invariant = batch_invariant;
  options.warm_up = warm_up;
  if (speculate != "off" && speculate != "ngram") {
    refuse("speculate '" + speculate + "' is not known; give one of: off, ngram");
  }
  if (speculate == "ngram") options.speculation.kind = SpeculationOptions::Kind::ngram;
  {
    const nb::gil_scoped_release released;
    new (self.p) Engine(ctx, model, tokenizer, options);
  }
  note_threads_of(self.h);
}

// The next event of a request, answering signals meanwhile; a signal's exception cancels it.
std::optional<Event> next_event(RequestHandle& self, double timeout) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(std::min(timeout, 1e9)));
  while (true) {
    std::optional<Event> event;
    {
      const nb::gil_scoped_release released;
      event = self.next_until(std::min(end, Clock::now() + kSignalInterval));
    }
    if (event || self.is_done()) return event;
    if (PyErr_CheckSignals() != 0) {
      self.cancel();
      throw nb::python_error();
    }
    if (Clock::now() >= end) return std::nullopt;
  }
}

RequestHandle submit(Engine& self, Ids prompt_ids, std::int64_t max_tokens, bool ignore_eos,
                     Ids stop_ids, std::vector<std::string> stop, SamplingOptions sampling,
                     std::int64_t top_logprobs, std::int64_t n,
                     const std::optional<std::pair<std::int64_t, std::int64_t>>& streaming,
                     int priority, std::optional<double> deadline) {
  Request request;
  request.prompt_ids = std::move(prompt_ids);
  request.options.max_tokens = max_tokens;
  request.options.ignore_eos = ignore_eos;
  request.options.stop_ids = std::move(stop_ids);
  request.options.stop = std::move(stop);
  request.options.sampling = std::move(sampling);
  request.options.top_logprobs = top_logprobs;
  request.n = n;
  request.policy = parse_policy(streaming);
  request.priority = priority;
  if (deadline) {
    constexpr double kNever = 1e12;  // seconds; in milliseconds it is still an int64
    const double seconds = std::fmin(std::fmax(*deadline, 0.0), kNever);
    request.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(1000.0 * seconds));
  }
  const nb::gil_scoped_release released;
  return self.submit(std::move(request));
}

const char* kind_name(const Event& event) {
  constexpr const char* kNames[] = {"token", "finished", "failed"};
  return kNames[static_cast<int>(event.kind)];
}

void bind_event(nb::module_& m) {
  nb::class_<TokenLogprob>(m, "TokenLogprob")
      .def_ro("id", &TokenLogprob::id)
      .def_ro("logprob", &TokenLogprob::logprob);
  nb::class_<Usage>(m, "Usage", "Tokens and times of a request.")
      .def_ro("prompt_tokens", &Usage::prompt_tokens)
      .def_ro("cached_tokens", &Usage::cached_tokens)
      .def_ro("generated_tokens", &Usage::generated_tokens)
      .def_ro("queued_seconds", &Usage::queued_seconds)
      .def_ro("first_seconds", &Usage::first_seconds)
      .def_ro("total_seconds", &Usage::total_seconds)
      .def("__getstate__",
           [](const Usage& self) {
             return UsageState(self.prompt_tokens, self.cached_tokens, self.generated_tokens,
                               self.queued_seconds, self.first_seconds, self.total_seconds);
           })
      .def("__setstate__", [](Usage& self, const UsageState& state) {
        std::apply([&](auto... parts) { new (&self) Usage{parts...}; }, state);
      });
  nb::class_<Event>(m, "Event", "What happened to a choice of a request.")
      .def_prop_ro("kind", &kind_name, "token, finished or failed")
      .def_ro("choice", &Event::choice)
      .def_prop_ro("token_id", [](const Event& self) { return self.token.sampled.token.id; })
      .def_prop_ro("logprob", [](const Event& self) { return self.token.sampled.token; })
      .def_prop_ro("top", [](const Event& self) { return self.token.sampled.top; })
      .def_prop_ro("text", [](const Event& self) { return self.token.text; })
      .def_prop_ro("reason", [](const Event& self) { return name(self.reason); })
      .def_prop_ro("code", [](const Event& self) { return name(self.code); })
      .def_ro("message", &Event::message)
      .def_ro("usage", &Event::usage);
}

void bind_stats(nb::module_& m) {
  nb::class_<EngineStats>(m, "EngineStats", "What an engine has done so far.")
      .def_ro("running", &EngineStats::running)
      .def_ro("waiting", &EngineStats::waiting)
      .def_ro("steps", &EngineStats::steps)
      .def_ro("prompt_tokens", &EngineStats::prompt_tokens)
      .def_ro("cached_tokens", &EngineStats::cached_tokens)
      .def_ro("generated_tokens", &EngineStats::generated_tokens)
      .def_ro("finished", &EngineStats::finished)
      .def_ro("failed", &EngineStats::failed)
      .def_ro("cancelled", &EngineStats::cancelled)
      .def_ro("preemptions", &EngineStats::preemptions)
      .def_ro("pages", &EngineStats::pages)
      .def_ro("pages_used", &EngineStats::pages_used)
      .def_ro("pages_peak", &EngineStats::pages_peak)
      .def_ro("drafted_tokens", &EngineStats::drafted_tokens)
      .def_ro("accepted_tokens", &EngineStats::accepted_tokens)
      .def_ro("failed_guesses", &EngineStats::failed_guesses)
      .def_ro("step_seconds", &EngineStats::step_seconds);
}

}  // namespace

void bind_engine(nb::module_& m) {
  nb::class_<SamplingOptions>(m, "SamplingOptions", "How the next token of a stream is chosen.")
      .def(nb::init<>())
      .def_rw("greedy", &SamplingOptions::greedy)
      .def_rw("temperature", &SamplingOptions::temperature)
      .def_rw("top_k", &SamplingOptions::top_k)
      .def_rw("top_p", &SamplingOptions::top_p)
      .def_rw("min_p", &SamplingOptions::min_p)
      .def_rw("repetition_penalty", &SamplingOptions::repetition_penalty)
      .def_rw("presence_penalty", &SamplingOptions::presence_penalty)
      .def_rw("frequency_penalty", &SamplingOptions::frequency_penalty)
      .def_rw("logit_bias", &SamplingOptions::logit_bias)
      .def_rw("seed", &SamplingOptions::seed);
  bind_event(m);
  bind_stats(m);
  nb::class_<RequestHandle>(m, "RequestHandle", "Follows one request.")
      .def_prop_ro("id", &RequestHandle::id)
      .def("cancel", &RequestHandle::cancel)
      .def_prop_ro("done", &RequestHandle::is_done)
      .def("next", &next_event, "timeout"_a = 1e9,
           "The next event. None once every choice has ended, or after `timeout` seconds.");
  nb::class_<Engine>(m, "Engine", nb::is_weak_referenceable(),
                     "Many conversations on one model, on a thread of its own.")
      .def("__init__", &make_engine, "ctx"_a, "model"_a, "tokenizer"_a.none(), nb::kw_only(),
           "context"_a = 0, "max_sequences"_a = 32, "max_step_tokens"_a = 512,
           "max_waiting"_a = 4096, "pages"_a = 0, "cache_dtype"_a = nb::none(),
           "prefix_cache"_a = true, "batch_invariant"_a = false, "warm_up"_a = false,
           "speculate"_a = "off", nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
           nb::keep_alive<1, 4>())
      .def("submit", &submit, "prompt_ids"_a, nb::kw_only(), "max_tokens"_a = 128,
           "ignore_eos"_a = false, "stop_ids"_a = Ids(), "stop"_a = std::vector<std::string>(),
           "sampling"_a = SamplingOptions(), "top_logprobs"_a = -1, "n"_a = 1,
           "streaming"_a = nb::none(), "priority"_a = 0, "deadline"_a = nb::none(),
           nb::keep_alive<0, 1>())  // a stream goes on when its LLM is no longer named
      .def("stats", &Engine::stats);
}

}  // namespace tessera::python

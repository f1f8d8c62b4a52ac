#include "server/generation_answer.h"

#include <algorithm>
#include <utility>

#include "server/http.h"

namespace tessera::server {

SubmittedRequest::SubmittedRequest(const std::string& body, bool chat, const ServedModel& served,
                                   const std::shared_ptr<AnswerQueue>& queue)
    : request_(read_generation(body, chat, served)) {
  try {
    for (std::size_t i = 0; i < request_.requests.size(); ++i) {
      Request request = request_.requests[i];
      request.on_event = [queue, prompt = static_cast<std::int64_t>(i)](const Event& event) {
        queue->push(prompt, event);
      };
      handles_.push_back(served.engine->submit(std::move(request)));
    }
  } catch (...) {
    cancel();  // the prompts before the one that was refused
    throw;
  }
}

void SubmittedRequest::cancel() {
  for (RequestHandle& handle : handles_) handle.cancel();
}

GenerationAnswer::GenerationAnswer(const ServedModel& served, const GenerationRequest& request)
    : stream_(request.stream),
      include_usage_(request.include_usage),
      n_(request.n()),
      open_(request.choices()),
      json_(served, request),
      begun_(static_cast<std::size_t>(request.choices())) {}

// A prompt counts once, whatever its number of choices.
void GenerationAnswer::count(const AnswerQueue::Item& item) {
  --open_;
  const TokenCounts counts = counts_of(item.event);
  counts_.generated += counts.generated;
  if (item.event.choice == 0) {
    counts_.prompt += counts.prompt;
    counts_.cached += counts.cached;
    first_seconds_ = std::max(first_seconds_, item.event.usage.first_seconds);
  }
}

std::string GenerationAnswer::take(const AnswerQueue::Item& item) {
  const Event& event = item.event;
  const std::int64_t index = item.prompt * n_ + event.choice;
  if (event.kind != Event::Kind::token) count(item);
  if (event.kind == Event::Kind::failed) {
    if (!error_) error_ = api_error(event.code, event.message);
    return {};
  }
  if (event.kind == Event::Kind::finished && event.reason == StopReason::cancelled) {
    // Nobody here asked for that: the engine is ending.
    if (!error_) error_ = shutting_down();
    return {};
  }
  if (!stream_) {
    json_.add(index, event);
    return {};
  }
  std::string out;
  const auto add = [&](const nlohmann::json& chunk) {
    if (!chunk.is_null()) out += sse_event(dump(chunk));
  };
  if (!begun_[static_cast<std::size_t>(index)]) {
    begun_[static_cast<std::size_t>(index)] = true;
    add(json_.first_chunk(index));
  }
  add(json_.chunk(index, event));
  return out;
}

std::string GenerationAnswer::stream_end() const {
  std::string out;
  if (error_) {
    out += sse_event(dump(error_json(*error_)));
  } else if (include_usage_) {
    out += sse_event(dump(json_.usage_chunk(counts_)));
  }
  return out + sse_event("[DONE]");
}

}  // namespace tessera::server

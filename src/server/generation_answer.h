// Answers one request for text: hands it to the engine, and its events to the client.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/answer_json.h"
#include "server/answer_queue.h"
#include "server/generation_request.h"
#include "server/served_model.h"

namespace tessera::server {

// The request in the engine. Ends with this object: choices that still run are cancelled.
class SubmittedRequest {
 public:
  // Reads, checks, encodes and submits; throws what is wrong with the body. Takes a while for long
  // prompts.
  SubmittedRequest(const std::string& body, bool chat, const ServedModel& served,
                   const std::shared_ptr<AnswerQueue>& queue);
  ~SubmittedRequest() { cancel(); }
  SubmittedRequest(const SubmittedRequest&) = delete;
  SubmittedRequest& operator=(const SubmittedRequest&) = delete;

  const GenerationRequest& request() const { return request_; }
  void cancel();

 private:
  GenerationRequest request_;
  std::vector<RequestHandle> handles_;
};

// What has come of an answer so far, as JSON.
class GenerationAnswer {
 public:
  GenerationAnswer(const ServedModel& served, const GenerationRequest& request);

  // Takes an event. Returns what a stream sends for it, which may be nothing.
  std::string take(const AnswerQueue::Item& item);
  // The end of a stream; an answer in one piece.
  std::string stream_end() const;
  nlohmann::json whole() const { return json_.whole(counts_); }

  bool is_done() const { return open_ == 0 || error_; }
  // The first error of a choice: the answer ends with it.
  const std::optional<ApiError>& error() const { return error_; }
  const std::string& id() const { return json_.id(); }
  const TokenCounts& counts() const { return counts_; }
  double first_seconds() const { return first_seconds_; }

 private:
  void count(const AnswerQueue::Item& item);

  bool stream_, include_usage_;
  std::int64_t n_, open_;
  AnswerJson json_;
  std::vector<bool> begun_;  // choices whose first piece was sent
  TokenCounts counts_;
  double first_seconds_ = 0;
  std::optional<ApiError> error_;
};

}  // namespace tessera::server

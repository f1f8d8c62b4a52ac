// How a connection answers a request for text, streamed or in one piece.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "server/client_watch.h"
#include "server/connection.h"
#include "server/generation_answer.h"
#include "server/limits.h"

namespace tessera::server {
namespace {

using Submitted = std::unique_ptr<SubmittedRequest>;

// On the thread that reads requests.
Task<Submitted> submit(const std::string& body, bool chat, const ServedModel& served,
                       std::shared_ptr<AnswerQueue> queue) {
  co_return std::make_unique<SubmittedRequest>(body, chat, served, queue);
}

}  // namespace

Task<bool> Connection::generate(const HttpRequest& request, bool chat, Head& head) {
  const ServedModel& served = *state_.served;
  queue_ = std::make_shared<AnswerQueue>(state_.io, kMostWaitingEvents, [this] { close(); });
  ClientWatch watch(socket_, buffer_, head.version >= 11, [this] { queue_->wake(); });
  const bool chunked = head.version >= 11;

  Submitted submitted;
  std::optional<GenerationAnswer> answer;
  std::optional<ApiError> error;
  bool is_streaming = false;  // the head of a stream has been sent
  try {
    submitted =
        co_await asio::co_spawn(state_.workers.get_executor(),
                                submit(request.body(), chat, served, queue_), asio::use_awaitable);
    answer.emplace(served, submitted->request());
  } catch (...) {
    error = caught_error();
  }
  while (!error && !watch.is_gone() && !answer->is_done()) {
    const std::vector<AnswerQueue::Item> items = co_await queue_->take();
    if (watch.is_gone()) break;
    std::string piece;
    for (const AnswerQueue::Item& item : items) {
      if (item.event.kind != Event::Kind::token) state_.metrics.count_answer(item.event);
      piece += answer->take(item);
    }
    if (state_.ending && !answer->is_done()) error = shutting_down();
    if (piece.empty()) continue;
    bool is_sent = true;
    if (!is_streaming) {
      is_streaming = true;
      watch.stop_probing();
      is_sent = co_await send_stream_head(head, chunked);
    }
    if (is_sent) is_sent = co_await send_piece(std::move(piece), chunked);
    if (!is_sent) break;
  }
  const bool is_complete = answer && answer->is_done();
  if (answer && answer->error()) error = answer->error();
  if (submitted && !is_complete) submitted->cancel();
  watch.stop_probing();
  const bool is_gone = watch.is_gone();
  co_await watch.stop();
  at_end_ = watch.at_end();
  queue_.reset();
  if (answer) {
    head.log.id = answer->id();
    head.log.prompt_tokens = answer->counts().prompt;
    head.log.generated_tokens = answer->counts().generated;
    head.log.first_seconds = answer->first_seconds();
  }
  constexpr int kClientLeft = 499;  // as nginx counts it
  if (is_gone || (!is_complete && !error)) {
    count(head, kClientLeft);
    close();
    co_return false;
  }
  if (!is_streaming && error) co_return co_await send(error_reply(*error), head);
  if (!submitted->request().stream) co_return co_await send(json_reply(answer->whole()), head);

  std::string end = error && !answer->error()
                        ? sse_event(dump(error_json(*error))) + sse_event("[DONE]")
                        : answer->stream_end();
  bool is_sent = co_await send_piece(std::move(end), chunked);
  if (is_sent) is_sent = co_await send_stream_end(chunked);
  count(head, error ? error->status : 200);
  co_return is_sent&& head.keep_alive && !error && !state_.draining;
}

}  // namespace tessera::server

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

// A request for text that is being answered.
struct Connection::Answering {
  Answering(Connection& connection, bool is_chunked)
      : watch(connection.socket_, connection.buffer_, connection.at_end_, is_chunked,
              [&connection] { connection.queue_->wake(); }),
        chunked(is_chunked) {}

  bool is_complete() const { return answer && answer->is_done(); }

  ClientWatch watch;
  bool chunked;
  Submitted submitted;
  std::optional<GenerationAnswer> answer;
  std::optional<ApiError> error;
  bool is_streaming = false;  // the head of a stream has been sent
};

Task<bool> Connection::generate(const HttpRequest& request, bool chat, Head& head) {
  queue_ = std::make_shared<AnswerQueue>(state_.io, kMostWaitingEvents, [this] { close(); });
  Answering now(*this, head.version >= 11);
  try {
    now.submitted = co_await asio::co_spawn(state_.workers.get_executor(),
                                            submit(request.body(), chat, *state_.served, queue_),
                                            asio::use_awaitable);
    now.answer.emplace(*state_.served, now.submitted->request());
  } catch (...) {
    now.error = caught_error();
  }
  co_await pass_on_events(now, head);
  const bool is_gone = co_await stop_watching(now);
  if (now.answer) {
    head.log.id = now.answer->id();
    head.log.prompt_tokens = now.answer->counts().prompt;
    head.log.generated_tokens = now.answer->counts().generated;
    head.log.first_seconds = now.answer->first_seconds();
  }
  constexpr int kClientLeft = 499;  // as nginx counts it
  if (is_gone || (!now.is_complete() && !now.error)) {
    count(head, kClientLeft);
    close();
    co_return false;
  }
  co_return co_await end_answer(now, head);
}

// Until the answer is complete, the client has left, or something failed.
Task<void> Connection::pass_on_events(Answering& now, const Head& head) {
  while (!now.error && !now.watch.is_gone() && !now.answer->is_done()) {
    const std::vector<AnswerQueue::Item> items = co_await queue_->take();
    if (now.watch.is_gone()) break;
    std::string piece;
    for (const AnswerQueue::Item& item : items) {
      if (item.event.kind != Event::Kind::token) state_.metrics.count_answer(item.event);
      piece += now.answer->take(item);
    }
    if (state_.ending && !now.answer->is_done()) now.error = shutting_down();
    if (piece.empty()) continue;
    bool is_sent = true;
    if (!now.is_streaming) {
      now.is_streaming = true;
      now.watch.stop_probing();
      is_sent = co_await send_stream_head(head, now.chunked);
    }
    if (is_sent) is_sent = co_await send_piece(std::move(piece), now.chunked);
    if (!is_sent) break;
  }
  if (now.answer && now.answer->error()) now.error = now.answer->error();
}

// The engine stops writing what nobody will read. Returns whether the client has left.
Task<bool> Connection::stop_watching(Answering& now) {
  if (now.submitted && !now.is_complete()) now.submitted->cancel();
  now.watch.stop_probing();
  const bool is_gone = now.watch.is_gone();
  co_await now.watch.stop();
  at_end_ = now.watch.at_end();
  queue_.reset();
  co_return is_gone;
}

// The answer in one piece, or the end of a stream.
Task<bool> Connection::end_answer(Answering& now, Head& head) {
  if (!now.is_streaming && now.error) co_return co_await send(error_reply(*now.error), head);
  if (!now.submitted->request().stream) {
    co_return co_await send(json_reply(now.answer->whole()), head);
  }
  std::string end = now.error && !now.answer->error()
                        ? sse_event(dump(error_json(*now.error))) + sse_event("[DONE]")
                        : now.answer->stream_end();
  bool is_sent = co_await send_piece(std::move(end), now.chunked);
  if (is_sent) is_sent = co_await send_stream_end(now.chunked);
  count(head, now.error ? now.error->status : 200);
  co_return is_sent&& head.keep_alive && !now.error && !state_.draining;
}

}  // namespace tessera::server

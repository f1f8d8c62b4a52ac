// What a client may ask for and how long it may take: every cap of the server is here.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tessera::server {

struct ServerLimits {
  std::int64_t connections = 256;
  std::size_t header_bytes = 16 * 1024;
  std::size_t body_bytes = 4 * 1024 * 1024;
  // From the first byte of a request to its last: a client that sends a header now and then must
  // not hold a connection for ever.
  std::chrono::milliseconds request{30'000};
  std::chrono::milliseconds idle{75'000};   // between two requests of a connection
  std::chrono::milliseconds write{30'000};  // for the client to take the next piece of an answer
};

// Of one request.
inline constexpr std::int64_t kMostChoices = 128;  // prompts times n
inline constexpr std::int64_t kMostStops = 16;
inline constexpr std::int64_t kMostStopLength = 256;  // characters
inline constexpr std::int64_t kMostBiases = 1024;
inline constexpr std::int64_t kMostLogprobs = 20;
inline constexpr std::int64_t kMostTokens = 1'000'000;
inline constexpr std::int64_t kMostMessages = 4096;
// Tokens and log-probabilities that an answer in one piece may hold: some 100 MB at worst. A stream
// holds only what its client has not read yet.
inline constexpr std::int64_t kMostHeldEntries = 4'000'000;
// Events of the engine that wait for a client of a stream. A client that stays further behind loses
// its stream.
inline constexpr std::size_t kMostWaitingEvents = 2048;
// Names of headers that a page of another origin may ask for before a request. Clients of the API
// bring a dozen.
inline constexpr std::size_t kMostAskedHeaderBytes = 1024;
// Bytes of later requests that a client may send while it waits for an answer.
inline constexpr std::size_t kMostPipelinedBytes = 64 * 1024;

}  // namespace tessera::server

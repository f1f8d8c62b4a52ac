// The server's coroutines. A header of its own: not every compiler that reads the others has them.
#pragma once

#include <boost/asio/awaitable.hpp>

namespace tessera::server {

// All of them run on the one thread of the network.
template <typename T>
using Task = boost::asio::awaitable<T>;

}  // namespace tessera::server

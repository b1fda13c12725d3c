#include "connection.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace smoe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kWriteTimeout = 30;  // seconds without progress
constexpr int kRefusingThreads = 4;
constexpr std::chrono::milliseconds kKeepAlive{5000};
constexpr std::chrono::milliseconds kPollInterval{100};
constexpr std::chrono::milliseconds kDrainTime{1000};

thread_local ClientConnection* current_connection = nullptr;

bool poll_for(socket_t socket, short events, int64_t timeout_ms) {
  pollfd entry{socket, events, 0};
  int result = 0;
  do {
    result = ::poll(&entry, 1, static_cast<int>(std::max<int64_t>(0, timeout_ms)));
  } while (result < 0 && errno == EINTR);
  return result > 0 && (entry.revents & POLLNVAL) == 0;
}

void read_address(const sockaddr_storage& address, std::string& ip, int& port) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address, sizeof v4);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    port = ntohs(v4.sin_port);
  } else if (address.ss_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &address, sizeof v6);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    port = ntohs(v6.sin6_port);
  }
  ip = text;
}

}  // namespace

ClientConnection& ClientConnection::current() { return *current_connection; }

void ClientConnection::begin_request() {
  deadline_ = Clock::now() +
              std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(read_timeout_s_));
  may_read_ = kMaxHeaderBytes;
}

bool ClientConnection::wait_readable(std::chrono::milliseconds timeout) const {
  if (buffer_position_ < buffer_.size()) return true;
  return poll_for(socket_, POLLIN, timeout.count()) && is_alive();
}

bool ClientConnection::is_alive() const {
  char byte = 0;
  const ssize_t received = ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return received > 0 || (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

void ClientConnection::drain() const {
  ::shutdown(socket_, SHUT_WR);
  const Clock::time_point end = Clock::now() + kDrainTime;
  char bytes[4096];
  while (Clock::now() < end && poll_for(socket_, POLLIN, kPollInterval.count())) {
    if (::recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT) <= 0) return;
  }
}

bool ClientConnection::is_readable() const { return wait_readable(kPollInterval); }

bool ClientConnection::is_writable() const {
  return poll_for(socket_, POLLOUT, static_cast<int64_t>(write_timeout_s_ * 1000)) && is_alive();
}

ssize_t ClientConnection::fill(int64_t timeout_ms) {
  if (!poll_for(socket_, POLLIN, timeout_ms)) return -1;
  buffer_.resize(size_t{1} << 14);
  const ssize_t received = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
  buffer_.resize(received > 0 ? static_cast<size_t>(received) : 0);
  buffer_position_ = 0;
  return received;
}

ssize_t ClientConnection::read(char* data, size_t size) {
  if (size == 0) return 0;
  // After a request that did not come in completely, nothing that follows can be understood.
  must_close_ = true;
  if (may_read_ == 0) return -1;
  if (buffer_position_ == buffer_.size()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
    if (left.count() <= 0) return -1;
    const ssize_t received = fill(left.count());
    if (received <= 0) return received;
  }
  must_close_ = asked_to_close_;
  size = std::min(size, buffer_.size() - buffer_position_);
  if (may_read_ > 0) {
    size = std::min(size, static_cast<size_t>(may_read_));
    may_read_ -= static_cast<int64_t>(size);
  }
  std::memcpy(data, buffer_.data() + buffer_position_, size);
  buffer_position_ += size;
  return static_cast<ssize_t>(size);
}

ssize_t ClientConnection::write(const char* data, size_t size) {
  if (!poll_for(socket_, POLLOUT, static_cast<int64_t>(write_timeout_s_ * 1000))) return -1;
  return ::send(socket_, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ClientConnection::get_remote_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    read_address(address, ip, port);
}

void ClientConnection::get_local_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    read_address(address, ip, port);
}

BoundedServer::BoundedServer(int64_t max_connections, double read_timeout_s, std::string refusal)
    : max_connections_(max_connections), read_timeout_s_(read_timeout_s), refusal_(std::move(refusal)) {
  new_task_queue = [max_connections] {
    return new httplib::ThreadPool(static_cast<size_t>(max_connections + kRefusingThreads));
  };
}

bool BoundedServer::process_and_close_socket(socket_t socket) {
  ClientConnection connection(socket, read_timeout_s_, kWriteTimeout);
  // Small chunks of a stream must not wait for the acknowledgement of the ones before.
  const int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (++num_connections_ > max_connections_) {
    refuse(connection);
  } else {
    serve(connection);
  }
  --num_connections_;
  ::shutdown(socket, SHUT_RDWR);
  ::close(socket);
  return true;
}

void BoundedServer::serve(ClientConnection& connection) {
  current_connection = &connection;
  Clock::time_point idle_until = Clock::now() + kKeepAlive;
  while (svr_sock_ != INVALID_SOCKET && Clock::now() < idle_until) {
    if (!connection.wait_readable(kPollInterval)) {
      if (!connection.is_alive()) break;
      continue;
    }
    connection.begin_request();
    bool is_closed = false;
    if (!process_request(connection, false, is_closed, nullptr) || is_closed) break;
    if (connection.must_close()) break;
    idle_until = Clock::now() + kKeepAlive;
  }
  if (connection.must_close()) connection.drain();
  current_connection = nullptr;
}

void BoundedServer::refuse(ClientConnection& connection) const {
  const std::string response = fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
      "Connection: close\r\nContent-Length: {}\r\n\r\n{}",
      refusal_.size(), refusal_);
  connection.write(response.data(), response.size());
  connection.drain();
}

}  // namespace smoe

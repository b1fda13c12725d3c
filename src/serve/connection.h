// The HTTP server of cpp-httplib with what it lacks here: a bound on connections, a deadline for a request to
// arrive, a bound on its header, and knowing whether the client is still there while an answer is computed.
#pragma once

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <string>

namespace smoe {

// One accepted socket as a stream that requests are read from.
class ClientConnection final : public httplib::Stream {
 public:
  ClientConnection(socket_t socket, double read_timeout_s, double write_timeout_s)
      : socket_(socket), read_timeout_s_(read_timeout_s), write_timeout_s_(write_timeout_s) {}

  // The connection that the calling thread serves.
  static ClientConnection& current();

  // The next request has read_timeout_s to arrive, and kMaxHeaderBytes before allow_body().
  void begin_request();
  void allow_body() { may_read_ = -1; }
  // Data waits, or comes within `timeout`; false also where the client has closed.
  bool wait_readable(std::chrono::milliseconds timeout) const;
  // False once the client has closed its side.
  bool is_alive() const;
  // No further request is read from this connection.
  void close_after_response() { asked_to_close_ = must_close_ = true; }
  bool must_close() const { return must_close_; }
  // Reads away what the client still sends, so that closing does not lose it the response.
  void drain() const;

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* data, size_t size) override;
  ssize_t write(const char* data, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

  static constexpr int64_t kMaxHeaderBytes = int64_t{1} << 16;

 private:
  ssize_t fill(int64_t timeout_ms);

  socket_t socket_;
  double read_timeout_s_;
  double write_timeout_s_;
  std::chrono::steady_clock::time_point deadline_;
  int64_t may_read_ = -1;  // bytes of the header; -1: any
  bool must_close_ = false;
  bool asked_to_close_ = false;
  std::string buffer_;
  size_t buffer_position_ = 0;
};

class BoundedServer final : public httplib::Server {
 public:
  // Connections beyond `max_connections` get `refusal` (status 503, JSON) and are closed.
  BoundedServer(int64_t max_connections, double read_timeout_s, std::string refusal);

 private:
  bool process_and_close_socket(socket_t socket) override;
  void serve(ClientConnection& connection);
  void refuse(ClientConnection& connection) const;

  int64_t max_connections_;
  double read_timeout_s_;
  std::string refusal_;
  std::atomic<int64_t> num_connections_ = 0;
};

}  // namespace smoe

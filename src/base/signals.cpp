#include "base/signals.hpp"

#include <csignal>
#include <initializer_list>

namespace capstan {

namespace {
// A handler can reach nothing but a global: these two flags are the only mutable ones of
// Capstan.
volatile std::sig_atomic_t g_stop = 0;
volatile std::sig_atomic_t g_checkpoint = 0;

void on_signal(int signal) {
  if (signal == SIGUSR2) {
    g_checkpoint = 1;
  } else {
    g_stop = 1;
  }
}
}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM})
    sigaction(signal, &action, nullptr);
  // A file beyond the limit of its size is then a write that fails, like a full disk,
  // which training survives; the default is to end the process.
  std::signal(SIGXFSZ, SIG_IGN);
}

SignalRequests take_requests() {
  SignalRequests requests{g_stop != 0, g_checkpoint != 0};
  g_stop = 0;
  g_checkpoint = 0;
  return requests;
}

}  // namespace capstan

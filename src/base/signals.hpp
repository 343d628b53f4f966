#pragma once
/// \file Signals become flags that the training loop reads between steps.
namespace capstan {

/// What was asked for since the last take_requests(), by signal.
struct SignalRequests {
  bool stop = false;        ///< SIGUSR1 or SIGTERM: checkpoint, then exit 75
  bool checkpoint = false;  ///< SIGUSR2: checkpoint and go on
};

/// Installs the handlers (SIGUSR1, SIGUSR2, SIGTERM) and ignores SIGXFSZ. Call after
/// MPI_Init.
void install_signal_handlers();
/// Reads and clears the flags of this process.
SignalRequests take_requests();

}  // namespace capstan

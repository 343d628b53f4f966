#pragma once
/// \file From a command line and a deck to an exit code: the modes that need the model.
#include "comm/comm.hpp"
#include "deck/command_line.hpp"
#include "deck/deck.hpp"

namespace capstan {

/// The deck of the files and overrides of a command line; with -r and no -i, the deck
/// that the checkpoint was written with. -t becomes job/wall_limit_seconds.
Deck deck_for(const CommandLine& line);

/// Trains, evaluates, samples, or makes a tiny step. Collective over the world.
Exit drive(const CommandLine& line, const Deck& deck, const Comm& world);

/// Prints what is wrong with a checkpoint, or that it is intact. Needs no deck.
/// Collective.
Exit verify(const std::string& path, const Comm& world);

/// --export: the weights of the checkpoint of -r as safetensors. Needs no deck; rank 0
/// alone works.
Exit export_model(const CommandLine& line, const Comm& world);

/// `capstan -c`: versions and libraries.
std::string config_text();

/// Prints what went wrong and returns the exit code. A failure of one rank alone ends all
/// others.
int report_failure(const Comm& world, Exit code, const std::string& text);

}  // namespace capstan

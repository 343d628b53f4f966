#pragma once
/// \file The data part of a deck.
#include "data/sampler.hpp"
#include "deck/deck.hpp"

namespace capstan {

/// Sources, mixture stages, split and order of a deck. A source is one entry of
/// data/files or mixtureN/files; its name is the last part of the path (the whole text
/// where two entries would share it), so a corpus may be moved without changing the order
/// or the held-out split. `lengths` is the history of sequence lengths of the run, the
/// present one last; empty: it always was model/seq_len. Error(Exit::deck): ranges of
/// mixtures overlap or leave tokens without sources, or a range
/// names a file twice.
SamplerSpec sampler_spec(const Deck& deck, const std::vector<LengthStage>& lengths = {});

/// True when the two specs draw differently somewhere before `tokens`: other sources,
/// weights or stages. Sources with content of their own are the fingerprint's business.
bool order_differs(const SamplerSpec& before, const SamplerSpec& now, index_t tokens);

}  // namespace capstan

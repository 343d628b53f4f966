#pragma once
/// \file Many pieces of a buffer, packed one after the other, and back.
#include "base/types.hpp"

namespace capstan {

/// Elements of a piece, at most.
inline constexpr index_t kPieceElements = 4096;
/// Numbers of a piece in a table: its first element in the buffer, its first element
/// where it is packed, its number of elements.
inline constexpr index_t kPieceTerms = 3;

/// packed = the pieces [first, first + count) of `table` [pieces * kPieceTerms] from
/// `buffer`. `origin` is subtracted from the places in packed.
template <class T>
void pack_pieces(View1<const index_t> table, index_t first, index_t count, index_t origin,
                 const T* buffer, T* packed);
/// The way back: these pieces of buffer = packed.
template <class T>
void unpack_pieces(View1<const index_t> table, index_t first, index_t count,
                   index_t origin, const T* packed, T* buffer);

}  // namespace capstan
